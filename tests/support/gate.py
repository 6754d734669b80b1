"""A TCP proxy on loopback that a test opens, shuts and freezes."""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit, urlunsplit


class Gate:
    """`shut`: every connection is cut and none is taken. Frozen: connections stay, nothing passes and nothing is
    read. `taken`: connections so far."""

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._shut = False
        self._moving = asyncio.Event()
        self._moving.set()
        self._writers: set[StreamWriter] = set()
        self.port = 0
        self.taken = 0

    def shut(self) -> None:
        self._shut = True
        for writer in self._writers:
            writer.transport.abort()

    def open(self) -> None:
        self._shut = False
        self._moving.set()

    def freeze(self) -> None:
        self._moving.clear()
        for writer in self._writers:
            # Else the library would go on reading what comes, up to its own limit.
            with suppress(RuntimeError):
                writer.transport.pause_reading()  # type: ignore[attr-defined]

    def thaw(self) -> None:
        self._moving.set()
        for writer in self._writers:
            with suppress(RuntimeError):
                writer.transport.resume_reading()  # type: ignore[attr-defined]

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self._shut:
            writer.transport.abort()
            return
        try:
            other_reader, other = await asyncio.open_connection(*self._to, limit=4096)
        except OSError:
            writer.transport.abort()
            return
        self.taken += 1
        ends = {writer, other}
        self._writers |= ends
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pass(reader, other))
                tasks.create_task(self._pass(other_reader, writer))
        finally:
            self._writers -= ends
            for end in ends:
                end.transport.abort()

    async def _pass(self, reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                await self._moving.wait()
                writer.write(data)
                await writer.drain()
        with suppress(OSError, RuntimeError):
            writer.write_eof()


@asynccontextmanager
async def gate(host: str, port: int) -> AsyncIterator[Gate]:
    """In front of that server, open, until the block ends."""
    made = Gate(host, port)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, limit=4096)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        made.shut()


@asynccontextmanager
async def database_gate(dsn: str) -> AsyncIterator[tuple[Gate, str]]:
    """The same for a database, and the way to it through the gate."""
    parts = urlsplit(dsn)
    assert parts.hostname is not None
    assert parts.port is not None
    async with gate(parts.hostname, parts.port) as made:
        netloc = parts.netloc.rpartition("@")[0] + f"@127.0.0.1:{made.port}"
        yield made, urlunsplit(parts._replace(netloc=netloc))
