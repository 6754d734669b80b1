"""A proxy in front of PostgreSQL that knows which statement is on its way, so that a test can delay it or kill there.

It reads the wire protocol's framing and the texts of prepared statements, and nothing else of it.
"""

import asyncio
import itertools
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit


@dataclass(frozen=True, slots=True)
class Statement:
    """One execution. `connection` counts connections; `in_transaction`: between BEGIN and COMMIT, both included."""

    text: str
    connection: int
    in_transaction: bool

    @property
    def commits(self) -> bool:
        return self.text.startswith("COMMIT")


Hook = Callable[[Statement], Awaitable[None]]
"""Raises Cut to end the connection there."""

_SSL_REQUEST = 80877103
_GSS_REQUEST = 80877104


class Cut(Exception):
    """The connection shall end here."""


async def _nothing(_: Statement) -> None:
    pass


class StatementProxy:
    """`before` runs before the server hears of a statement, `after` once it has executed it and before the client hears
    of that."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self.before: Hook = _nothing
        self.after: Hook = _nothing
        self._numbers = itertools.count()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client's connection."""
        link = Link(self, next(self._numbers), reader, writer)
        try:
            await link.run(*await asyncio.open_connection(self._host, self._port))
        except* (Cut, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()


class Link:
    """One connection. Both directions are read message by message."""

    def __init__(
        self, proxy: StatementProxy, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._proxy = proxy
        self._number = number
        self._client = reader
        self._to_client = writer
        self._prepared: dict[bytes, str] = {}
        # What each ReadyForQuery that is still to come will answer; None: no execution.
        self._asked: deque[Statement | None] = deque([None])
        self._in_transaction = False

    async def run(self, server: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        """Until either side goes."""
        try:
            await self._start(to_server)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._asking(to_server))
                tasks.create_task(self._answer(server))
        finally:
            to_server.transport.abort()

    async def _start(self, to_server: asyncio.StreamWriter) -> None:
        while True:
            size = await self._client.readexactly(4)
            body = await self._client.readexactly(struct.unpack(">I", size)[0] - 4)
            if struct.unpack(">I", body[:4])[0] not in (_SSL_REQUEST, _GSS_REQUEST):
                to_server.write(size + body)
                return
            self._to_client.write(b"N")

    async def _asking(self, to_server: asyncio.StreamWriter) -> None:
        try:
            await self._ask(to_server)
        except asyncio.IncompleteReadError:
            # The client is gone; the other direction ends by itself, and no hook in it is cut short.
            to_server.close()

    async def _ask(self, to_server: asyncio.StreamWriter) -> None:
        batch = bytearray()
        executed: Statement | None = None
        while True:
            kind, body, raw = await _message(self._client)
            batch += raw
            if kind == b"P":
                name, text, *_ = body.split(b"\0", 2)
                self._prepared[name] = text.decode()
            elif kind == b"B":
                executed = self._statement(self._prepared[body.split(b"\0", 2)[1]])
            elif kind == b"Q":
                executed = self._statement(body.rstrip(b"\0").decode())
            if kind in (b"S", b"Q"):
                if executed is not None:
                    await self._proxy.before(executed)
                self._asked.append(executed)
                executed = None
            if kind in (b"S", b"Q", b"H", b"p", b"X"):
                to_server.write(batch)
                await to_server.drain()
                batch.clear()

    def _statement(self, text: str) -> Statement:
        begins, ends = text.startswith("BEGIN"), text.startswith(("COMMIT", "ROLLBACK"))
        made = Statement(text, self._number, self._in_transaction or begins)
        self._in_transaction = (self._in_transaction or begins) and not ends
        return made

    async def _answer(self, server: asyncio.StreamReader) -> None:
        held = bytearray()
        while True:
            kind, _, raw = await _message(server)
            held += raw
            asked = self._asked[0] if self._asked else None
            if kind == b"Z":
                self._asked.popleft()
                if asked is not None:
                    await self._proxy.after(asked)
            elif asked is not None:
                continue
            self._to_client.write(held)
            held.clear()
            await self._to_client.drain()


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes, bytes]:
    head = await reader.readexactly(5)
    body = await reader.readexactly(struct.unpack(">I", head[1:])[0] - 4)
    return head[:1], body, head + body


@asynccontextmanager
async def statement_proxy(dsn: str) -> AsyncIterator[tuple[StatementProxy, str]]:
    """A proxy in front of the server that `dsn` names, and the same dsn through it."""
    parts = urlsplit(dsn)
    assert parts.hostname is not None
    assert parts.port is not None
    proxy = StatementProxy(parts.hostname, parts.port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    netloc = parts.netloc.rpartition("@")[0] + f"@127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy, urlunsplit(parts._replace(netloc=netloc))
    finally:
        server.close()


class StatementCounter(StatementProxy):
    """Knows what was executed over it. It leads where `instead_of` says."""

    def __init__(self) -> None:
        super().__init__("", 0)
        self.port = 0
        self.texts: list[str] = []
        self.before = self._note

    def instead_of(self, dsn: str) -> str:
        """The same database over this proxy, which from now on leads to that server."""
        parts = urlsplit(dsn)
        assert parts.hostname is not None
        assert parts.port is not None
        self._host, self._port = parts.hostname, parts.port
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[0] + f"@127.0.0.1:{self.port}"))

    async def _note(self, statement: Statement) -> None:
        self.texts.append(statement.text)


@asynccontextmanager
async def statement_counter() -> AsyncIterator[StatementCounter]:
    """On a loopback port of its own."""
    counter = StatementCounter()
    server = await asyncio.start_server(counter.serve, "127.0.0.1", 0)
    counter.port = server.sockets[0].getsockname()[1]
    try:
        yield counter
    finally:
        server.close()
