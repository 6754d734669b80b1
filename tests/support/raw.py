"""A stream's bytes as they came, cut into blocks: for tests that compare to the byte."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.waiting import PATIENCE


class RawStream:
    """`blocks` of the log: each with its id, without the empty line that ends it."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._rest = b""
        self.blocks: list[bytes] = []

    async def next_block(self, timeout: float = PATIENCE) -> bytes:
        """The next block of a committed event."""
        async with asyncio.timeout(timeout):
            while True:
                block, found, rest = self._rest.partition(b"\n\n")
                if not found:
                    self._rest += await self._chunk()
                    continue
                self._rest = rest
                if block.startswith(b"id: ") and b"\nevent: stream." not in block:
                    self.blocks.append(block)
                    return block

    async def until(self, marker: bytes, timeout: float = PATIENCE) -> list[bytes]:
        """All blocks up to the first that has `marker`."""
        while marker not in await self.next_block(timeout):
            pass
        return self.blocks

    async def _chunk(self) -> bytes:
        size = int(await self._reader.readline() or b"0", 16)
        if size == 0:
            raise ConnectionError("the stream has ended")
        data = await self._reader.readexactly(size)
        await self._reader.readexactly(2)
        return data


@asynccontextmanager
async def raw_stream_of(port: int, session: str, after: int) -> AsyncIterator[RawStream]:
    """Open, past the answer's head."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    try:
        request = f"GET /v1/sessions/{session}/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
        writer.write(f"{request}Last-Event-ID: {after}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        yield RawStream(reader)
    finally:
        writer.transport.abort()
