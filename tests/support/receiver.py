"""Somebody's server that gets webhooks, on plain sockets: it keeps each request as it came."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Received:
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """`statuses`: what is answered, in order; then 204."""

    statuses: list[int] = field(default_factory=list)
    requests: list[Received] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
            original = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.requests.append(Received({name.lower(): value for name, value in original.items()}, body))
            status = self.statuses.pop(0) if self.statuses else 204
            writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiving(port: int) -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", port)
    try:
        yield receiver
    finally:
        server.close()
