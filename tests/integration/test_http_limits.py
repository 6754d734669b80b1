"""What one connection may send before anybody has looked at it: raw sockets against a serving process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from litestar import Litestar, Request, get, post

from services.gateway.sse.peer import StreamProtocol
from services.lifecycle import Life, listen, serve


class Hasty(StreamProtocol):
    """With bounds that a test can wait for."""

    head_seconds = 0.3
    body_seconds = 0.3
    linger_seconds = 0.2


class Peer:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *pieces: bytes, pause: float = 0.0) -> None:
        for piece in pieces:
            self.writer.write(piece)
            try:
                await self.writer.drain()
            except ConnectionError:
                return
            await asyncio.sleep(pause)

    async def answer(self) -> bytes:
        """Everything up to the end of the connection."""
        async with asyncio.timeout(20):
            return await self.reader.read()

    async def status(self) -> int:
        """Of the first answer."""
        return int((await self.answer()).split(b" ", 2)[1])


@pytest.fixture
async def bodies() -> list[int]:
    return []


@asynccontextmanager
async def served(protocol: type[StreamProtocol], bodies: list[int]) -> AsyncIterator[Any]:
    """Opens connections to an app with such a protocol; all of its requests' tasks end with it."""

    @get("/")
    async def here() -> str:
        return "here"

    @post("/", status_code=200)
    async def take(request: Request[Any, Any, Any]) -> str:
        bodies.append(len(await request.body()))
        return "taken"

    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    life = Life()
    app = Litestar([here, take], request_max_body_size=1_000_000, openapi_config=None, logging_config=None)
    running = asyncio.create_task(serve(app, listener, life, protocol=protocol))
    peers: list[Peer] = []

    async def opened() -> Peer:
        peers.append(Peer(*await asyncio.open_connection("127.0.0.1", port)))
        return peers[-1]

    try:
        yield opened
    finally:
        for peer in peers:
            peer.writer.close()
        life.stop()
        await running


GET = b"GET / HTTP/1.1\r\nHost: x\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\n"
LARGE = 200_000

TOO_MUCH = {
    "long url": (414, [b"GET /?" + b"q" * LARGE + b" HTTP/1.1\r\nHost: x\r\n\r\n"]),
    "long header": (431, [GET + b"X-A: " + b"a" * LARGE + b"\r\n\r\n"]),
    "many headers": (431, [GET, *[b"X-%d: y\r\n" % n for n in range(5_000)], b"\r\n"]),
    "many bytes of headers": (431, [GET, *[b"X-%d: %b\r\n" % (n, b"y" * 1_000) for n in range(190)], b"\r\n"]),
    "a header without an end": (431, [GET + b"X-A: ", *[b"a" * 50_000] * 20]),
    "a name without an end": (431, [GET, *[b"a" * 50_000] * 20]),
    "not HTTP": (400, [b"\x16\x03\x01" + bytes(200)]),
    "two lengths": (400, [POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"]),
    "a length and chunks": (
        400,
        [POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1"],
    ),
    "too large a body": (413, [POST + b"Content-Length: 2000000\r\n\r\n"]),
}


@pytest.mark.parametrize("what", TOO_MUCH, ids=str)
async def test_what_is_too_much_is_refused_and_the_connection_closed(what: str, bodies: list[int]) -> None:
    status, pieces = TOO_MUCH[what]
    async with served(Hasty, bodies) as opened:
        peer = await opened()
        sending = asyncio.create_task(peer.send(*pieces))
        assert await peer.status() == status
        sending.cancel()
        other = await opened()
        await other.send(GET + b"Connection: close\r\n\r\n")
        assert b"here" in await other.answer()
    assert bodies == []


SLOW = {
    "nothing": ([], 408),
    "a head without an end": ([GET, b"X-A: y\r\n"], 408),
    "a head in drops": ([GET, *[b"X: y\r\n"] * 20], 408),
    "no body": ([POST + b"Content-Length: 10\r\n\r\n"], 408),
    "a body in drops": ([POST + b"Content-Length: 100\r\n\r\n", *[b"a"] * 20], 408),
    "chunks in drops": (
        [POST + b"Transfer-Encoding: chunked\r\n\r\n", *[b"1\r\na\r\n"] * 20],
        408,
    ),
    "the second head": ([GET + b"\r\n", GET], 200),
}


@pytest.mark.parametrize("what", SLOW, ids=str)
async def test_what_does_not_come_is_given_up(what: str, bodies: list[int]) -> None:
    pieces, status = SLOW[what]
    async with served(Hasty, bodies) as opened:
        peer = await opened()
        sending = asyncio.create_task(peer.send(*pieces, pause=0.1))
        answer = await peer.answer()
        assert int(answer.split(b" ", 2)[1]) == status
        assert answer.count(b"HTTP/1.1 408") == 1, "the last that is said"
        sending.cancel()
    assert bodies == []


async def test_what_comes_slowly_but_comes_is_taken(bodies: list[int]) -> None:
    """A head in pieces, a body that takes longer than a look, several requests on one connection, and a pause."""
    async with served(Hasty, bodies) as opened:
        peer = await opened()
        await peer.send(*(GET[n : n + 10] for n in range(0, len(GET), 10)), pause=0.01)
        await peer.send(b"\r\n", pause=0.6)
        await peer.send(POST + b"Content-Length: 100000\r\n\r\n")
        await peer.send(*[b"a" * 10_000] * 10, pause=0.1)
        await peer.send(POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-T: y\r\n\r\n")
        await peer.send(GET + b"Connection: close\r\n\r\n")
        answer = await peer.answer()
        assert answer.count(b"HTTP/1.1 200") == 4
        assert b"408" not in answer
    assert bodies == [100_000, 1]
