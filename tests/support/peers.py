"""Clients that misbehave: raw sockets that never read, read slowly, or hang up at once."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.sse import Sse, SseParser


@asynccontextmanager
async def raw_stream(
    port: int, session: str, after: int = 0, receive_buffer: int = 4096, *, authorization: str = ""
) -> AsyncIterator[socket.socket]:
    """A connection that has asked for a stream and has read nothing yet; a small receive buffer, so that little is on
    its way."""
    loop = asyncio.get_running_loop()
    peer = socket.socket()
    try:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        peer.setblocking(False)
        await loop.sock_connect(peer, ("127.0.0.1", port))
        request = f"GET /v1/sessions/{session}/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
        if authorization:
            request += f"Authorization: {authorization}\r\n"
        await loop.sock_sendall(peer, f"{request}Last-Event-ID: {after}\r\n\r\n".encode())
        yield peer
    finally:
        peer.close()


async def read_all(peer: socket.socket, marker: bytes | None = None, piece: int = 65536, pause: float = 0.0) -> bytes:
    """Everything until the server closes or cuts, or until the chunk with `marker` has come; `piece` bytes, then a
    pause."""
    loop = asyncio.get_running_loop()
    body = bytearray()
    found = False
    while True:
        try:
            data = await loop.sock_recv(peer, piece)
        except ConnectionResetError:
            return bytes(body)
        body += data
        found = found or (marker is not None and marker in body[-len(data) - len(marker) :])
        if not data or (found and body.endswith(b"\n\n\r\n")):
            return bytes(body)
        if pause:
            await asyncio.sleep(pause)


def frames_of(answer: bytes) -> list[Sse]:
    """Frames of a chunk-coded answer, as a client sees them: those of a cut last chunk that came whole, too. Raises
    ValueError where the coding is broken."""
    _, _, rest = answer.partition(b"\r\n\r\n")
    parser = SseParser()
    found: list[Sse] = []
    while rest:
        size, end, rest = rest.partition(b"\r\n")
        if not end:
            break
        if len(rest) < int(size, 16) + 2:
            return found + parser.feed(rest[: int(size, 16)])
        body, rest = rest[: int(size, 16)], rest[int(size, 16) :]
        if not rest.startswith(b"\r\n"):
            raise ValueError("a chunk does not end where it should")
        rest = rest[2:]
        found += parser.feed(body)
    return found
