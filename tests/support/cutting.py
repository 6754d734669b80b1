"""A TCP proxy before an agent service that loses replies: a request arrives, is answered, and the answer is cut off."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress


async def _nothing() -> None:
    pass


class CuttingProxy:
    """Forwards byte by byte. `lose(n, path)`: the next n replies to requests for that path are dropped with their
    connection, as when the process dies between its commit and its reply."""

    def __init__(self, upstream: str) -> None:
        self._host, _, port = upstream.removeprefix("http://").partition(":")
        self._port = int(port)
        self._left = 0
        self._path = b""
        self.lost = 0
        self.url = ""
        self.on_lost: Callable[[], Awaitable[None]] = _nothing
        """Runs when a reply was dropped, before the connection is: what becomes of the process meanwhile."""

    def lose(self, replies: int, path: str = "/internal/commands") -> None:
        self._left = replies
        self._path = path.encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, OSError):
            back, forth = await asyncio.open_connection(self._host, self._port)
            try:
                async with asyncio.TaskGroup() as tasks:
                    asked: list[bytes] = [b""]
                    up = tasks.create_task(self._up(reader, forth, asked))
                    await self._down(back, writer, asked)
                    up.cancel()
            finally:
                forth.close()
        writer.close()

    async def _up(self, reader: asyncio.StreamReader, forth: asyncio.StreamWriter, asked: list[bytes]) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                if data[:4] in (b"GET ", b"POST"):
                    asked[0] = data.partition(b"\r\n")[0]
                forth.write(data)
                await forth.drain()
        forth.close()

    async def _down(self, back: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: list[bytes]) -> None:
        with suppress(ConnectionError):
            while data := await back.read(65536):
                if self._left and self._path in asked[0]:
                    self._left -= 1
                    self.lost += 1
                    await self.on_lost()
                    return
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def cutting_proxy(upstream: str) -> AsyncIterator[CuttingProxy]:
    """A proxy on a loopback port of its own."""
    proxy = CuttingProxy(upstream)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
