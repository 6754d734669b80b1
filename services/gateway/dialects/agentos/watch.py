"""A session watched from inside this process: one more viewer of its feed, whose connection is a queue."""

import asyncio
from asyncio import Event
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from domain.errors import AgentUnavailable, SessionNotFound
from services.gateway.sse.attach import follow, stand_of
from services.gateway.sse.frames import closing
from services.gateway.sse.hub import Hub
from services.gateway.sse.viewer import Viewer

_ROOM = 256 * 1024
"""Bytes that wait here before the feed is told to wait: its own bound for a viewer lies behind that."""


class Block(NamedTuple):
    """One SSE block: its event name, and the JSON of its data."""

    type: str
    data: bytes


class Inside:
    """Implements `sse.ports.Peer` without a socket. What a viewer would be sent is taken out by `blocks`."""

    def __init__(self) -> None:
        self._blocks: deque[Block] = deque()
        self._size = 0
        self._over = False
        self._gone = False
        self._came = Event()
        self._room = Event()
        self._room.set()
        self._lost: Callable[[], None] | None = None

    @property
    def gone(self) -> bool:
        return self._gone

    @property
    def writable(self) -> bool:
        return self._size < _ROOM

    def write(self, chunk: bytes) -> None:
        place = 0
        while place < len(chunk):
            end = chunk.index(b"\r\n", place)
            size = int(chunk[place:end], 16)
            self.write_body(chunk[end + 2 : end + 2 + size])
            place = end + 2 + size + 2

    def write_body(self, body: bytes) -> None:
        if self._over or self._gone:
            return
        for block in body.split(b"\n\n"):
            parsed = _parsed(block)
            if parsed is not None:
                self._blocks.append(parsed)
                self._size += len(parsed.data)
        if not self.writable:
            self._room.clear()
        self._came.set()

    async def drain(self) -> None:
        await self._room.wait()

    def finish(self, last: bytes) -> None:
        self.write_body(last)
        self._over = True
        self._came.set()

    def watch(self, lost: Callable[[], None]) -> None:
        self._lost = lost

    def close(self) -> None:
        """Nobody takes anything out any more."""
        self._gone = True
        self._room.set()
        if self._lost is not None:
            self._lost()

    async def next(self, seconds: float) -> list[Block] | None:
        """What has come, waiting for that long: an empty list where nothing has, None once the stream has ended."""
        if not self._blocks and not self._over:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._came.wait()
        if not self._blocks and self._over:
            return None
        taken = list(self._blocks)
        self._blocks.clear()
        self._size = 0
        self._came.clear()
        self._room.set()
        return taken


def _parsed(block: bytes) -> Block | None:
    type_, data = "", b""
    for line in block.split(b"\n"):
        if line.startswith(b"event: "):
            type_ = line[7:].decode()
        elif line.startswith(b"data: "):
            data = line[6:]
    return Block(type_, data) if type_ else None


class Watch:
    """An open watch. `end` lets the stream end, as a drain or a revoked right does."""

    def __init__(self, peer: Inside, viewer: Viewer) -> None:
        self._peer = peer
        self._viewer = viewer

    async def next(self, seconds: float) -> list[Block] | None:
        """See `Inside.next`."""
        return await self._peer.next(seconds)

    def revoke(self) -> None:
        """The right to read is gone."""
        self._viewer.end(closing("revoked"))

    def expire(self) -> None:
        """The credential has expired."""
        self._viewer.end(closing("expired"))


@asynccontextmanager
async def watching(hub: Hub, session_id: str, cursor: int) -> AsyncIterator[Watch]:
    """Everything of the session after the cursor, committed and temporary, as any viewer gets it. Raises
    SessionNotFound, and Unavailable where this process takes no stream now."""
    if hub.draining or hub.full:
        raise AgentUnavailable()
    with hub.feed(session_id) as (feed, live):
        stand = await stand_of(hub, session_id, live)
        feed.learn(stand.head)
        peer = Inside()
        viewer = Viewer(peer, min(cursor, stand.head.last_sequence), hub.limits.viewer_buffer_bytes)
        hub.check(session_id, hub.limits.recheck_seconds)

        async def run() -> None:
            try:
                await follow(hub, feed, viewer)
            except SessionNotFound:
                viewer.end(closing("closed"))

        with hub.counted(viewer):
            following = asyncio.create_task(run())
            try:
                yield Watch(peer, viewer)
            finally:
                peer.close()
                following.cancel()
                await asyncio.wait((following,))
