"""Streams as clients read them that nobody here has written, and as the worst network hands them over: byte by byte."""

import asyncio
import socket
from collections.abc import AsyncIterator

import httpx2

from tests.support.client import terminal
from tests.support.cluster import Cluster
from tests.support.sse import Sse, SseParser, assert_gapless
from tests.support.waiting import PATIENCE

HEADERS = {"Accept": "text/event-stream"}


async def read(http: httpx2.AsyncClient, gateway: str, session: str, after: int) -> AsyncIterator[Sse]:
    """Committed events by httpx2's own EventSource, until whoever asks has enough."""
    headers = {**HEADERS, "Last-Event-ID": str(after)}
    async with http.stream("GET", f"{gateway}/v1/sessions/{session}/events", headers=headers) as answer:
        async for heard in httpx2.EventSource(answer):
            found = Sse(heard.event, heard.data, heard.id)
            if "sequence" in found.json:
                assert heard.id == str(found.json["sequence"])
                yield found


async def take(events: AsyncIterator[Sse], count: int | None = None) -> list[Sse]:
    """So many, or up to the end of the turn."""
    taken: list[Sse] = []
    async with asyncio.timeout(PATIENCE):
        async for event in events:
            taken.append(event)
            if len(taken) == count or event.event == "turn.completed":
                break
    return taken


async def test_httpx2_reads_the_same_clean_cut_after_each_event_and_at_the_other_gateway(cluster: Cluster) -> None:
    urls = [gateway.url for gateway in cluster.gateways]
    client = cluster.client()
    session = await client.create("tools")
    async with httpx2.AsyncClient(timeout=httpx2.Timeout(PATIENCE)) as http:
        clean = asyncio.create_task(take(read(http, urls[1], session, 0)))
        hopping = asyncio.create_task(hop(http, urls, session))
        await client.submit(session, "漢字 é 👩‍👩‍👧\r\nx")
        whole = await clean
        assert_gapless([event.json["sequence"] for event in whole])
        assert await hopping == whole
        for cut in range(1, len(whole)):
            seen = await take(read(http, urls[cut % 2], session, 0), cut)
            rest = await take(read(http, urls[1 - cut % 2], session, int(seen[-1].id or 0)))
            assert seen + rest == whole, cut
    assert [event.json for event in whole] == await client.events(session)


async def hop(http: httpx2.AsyncClient, urls: list[str], session: str) -> list[Sse]:
    """Live: one connection an event, the gateways in turn."""
    seen: list[Sse] = []
    while not seen or seen[-1].event != "turn.completed":
        seen += await take(read(http, urls[len(seen) % 2], session, len(seen)), 1)
    return seen


class OneByteSocket:
    """A blocking client that asks the kernel for one byte at a time and has room for few."""

    def __init__(self, port: int, session: str, after: int) -> None:
        self._parser = SseParser()
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self._socket.settimeout(PATIENCE)
        self._socket.connect(("127.0.0.1", port))
        request = f"GET /v1/sessions/{session}/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
        self._socket.sendall(f"{request}Last-Event-ID: {after}\r\n\r\n".encode())

    def take(self, count: int | None = None) -> list[Sse]:
        """So many committed events, or up to the end of the turn; then it hangs up."""
        taken: list[Sse] = []
        with self._socket:
            assert self._line().startswith(b"HTTP/1.1 200")
            while self._line():
                pass
            while True:
                for _ in range(int(self._line(), 16)):
                    for event in self._parser.feed(self._byte()):
                        if event.committed:
                            taken.append(event)
                            if len(taken) == count or event.event == "turn.completed":
                                return taken
                assert self._line() == b""

    def _byte(self) -> bytes:
        byte = self._socket.recv(1)
        assert byte, "the stream has ended"
        return byte

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\r\n"):
            line += self._byte()
        return line[:-2]


async def test_one_byte_at_a_time_clean_cut_after_each_event_and_at_the_other_gateway(cluster: Cluster) -> None:
    ports = [gateway.port or 0 for gateway in cluster.gateways]
    client = cluster.client()
    session = await client.create("tools")

    def taken(gateway: int, after: int, count: int | None = None) -> list[Sse]:
        return OneByteSocket(ports[gateway], session, after).take(count)

    clean = asyncio.create_task(asyncio.to_thread(taken, 1, 0))
    await client.submit(session, "漢字 é 👩‍👩‍👧\r\nx")
    whole = await clean
    assert_gapless([event.json["sequence"] for event in whole])
    for cut in range(1, len(whole)):
        seen = await asyncio.to_thread(taken, cut % 2, 0, cut)
        assert seen + await asyncio.to_thread(taken, 1 - cut % 2, cut) == whole, cut
    assert [event.json for event in whole] == await client.events(session)
    stream = client.stream(session, 0)
    await terminal(stream, whole[-1].turn_id or "")
    assert stream.committed == whole
