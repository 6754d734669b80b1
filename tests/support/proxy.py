"""A TCP proxy in front of PostgreSQL that cuts connections exactly where a test says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

Cut = Literal["before", "after"]


class CuttingProxy:
    """Forwards bytes until a client's message holds `cut_at`. Then, for as many times as `cuts` says, the connection
    dies: `before` the server gets the message, or `after` the server has answered it and before the client hears of
    it."""

    def __init__(self, host: str = "", port: int = 0, cut_at: bytes = b"COMMIT") -> None:
        self._host = host
        self._port = port
        self._cut_at = cut_at
        self._mode: Cut = "after"
        self._left = 0
        self.cut = 0
        self.port = 0

    def instead_of(self, dsn: str) -> str:
        """The same database over this proxy, which from now on leads to that server."""
        parts = urlsplit(dsn)
        assert parts.hostname is not None
        assert parts.port is not None
        self._host, self._port = parts.hostname, parts.port
        netloc = parts.netloc.rpartition("@")[0] + f"@127.0.0.1:{self.port}"
        return urlunsplit(parts._replace(netloc=netloc))

    def arm(self, mode: Cut, cuts: int) -> None:
        """Cut the next `cuts` connections that say the word."""
        self._mode, self._left = mode, cuts

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream_reader, upstream = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        answers = asyncio.create_task(self._answers(upstream_reader, writer))
        try:
            while data := await reader.read(65536):
                if self._left and self._cut_at in data:
                    self._left -= 1
                    self.cut += 1
                    if self._mode == "after":
                        answers.cancel()
                        with suppress(asyncio.CancelledError):
                            await answers
                        upstream.write(data)
                        await upstream.drain()
                        await upstream_reader.read(65536)
                    return
                upstream.write(data)
                await upstream.drain()
        except ConnectionError:
            return
        finally:
            answers.cancel()
            upstream.close()
            writer.transport.abort()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        # Also where the server was killed: a client that is not told waits for an answer until it times out.
        writer.close()


@asynccontextmanager
async def listening_proxy() -> AsyncIterator[CuttingProxy]:
    """A proxy on a loopback port of its own that does not know yet where it leads to."""
    proxy = CuttingProxy()
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()


@asynccontextmanager
async def cutting_proxy(dsn: str) -> AsyncIterator[tuple[CuttingProxy, str]]:
    """A proxy in front of the server that `dsn` names, and the same dsn through it."""
    async with listening_proxy() as proxy:
        yield proxy, proxy.instead_of(dsn)
