"""One open stream: a bounded buffer between the feed, which never waits, and a connection that may."""

import asyncio
from asyncio import Future
from collections import deque

from services.gateway.sse.frames import COMMENT, ClosingReason, closing
from services.gateway.sse.ports import Peer, chunk_of

_ONE_WRITE = 64 * 1024
_SLOW = closing("slow_consumer")


class Viewer:
    """Written to by the feed while it keeps up; what comes while it lags waits here and is written by its own task,
    joined.

    `cursor` is the last sequence that was given to it, by replay or by the feed. A viewer that is not `joined` gets
    nothing from the feed and pulls pages. Every write is whole blocks. Once `over`, nothing more is written."""

    __slots__ = (
        "_backlog",
        "_fresh",
        "_last",
        "_limit",
        "_wake",
        "cursor",
        "joined",
        "joined_at",
        "over",
        "peer",
        "size",
    )

    def __init__(self, peer: Peer, cursor: int, limit: int) -> None:
        self.peer = peer
        self.cursor = cursor
        self.joined = False
        self.joined_at = 0
        self.over = False
        self.size = 0
        self._limit = limit
        self._backlog: deque[bytes] = deque()
        self._fresh = True
        self._last: ClosingReason | None = None
        self._wake: Future[None] | None = None
        peer.watch(self.lost)

    def push(self, chunk: bytes, last: int) -> None:
        """A chunk with the events up to `last`, shared by all viewers. Over the bound the stream ends as slow: its
        client resumes where it was, and nobody else notices. A single larger chunk is admitted when nothing waits."""
        self.cursor = last
        if not self._backlog and self.peer.writable:
            self._fresh = True
            self.peer.write(chunk)
        elif self._backlog and self.size + len(chunk) > self._limit:
            self.end(_SLOW)
        else:
            self._backlog.append(chunk)
            self.size += len(chunk)
            self._notify()

    def fits(self, size: int) -> bool:
        """Whether that many bytes more can wait here."""
        return self.size + size <= self._limit

    def leave(self) -> None:
        """The feed went on without it: from here it pulls."""
        self.joined = False
        self._notify()

    def end(self, last: bytes) -> None:
        """End the stream with that frame. What waits is left out, since its client comes back for it; what the
        connection already has still goes out."""
        if not self.over:
            self.over = True
            self._drop()
            self.peer.finish(last)

    def end_after_backlog(self, reason: ClosingReason) -> None:
        """End the stream when all that waits is written."""
        self._last = reason
        self._notify()

    def lost(self) -> None:
        """The connection is gone."""
        self.over = True
        self._drop()

    def comment(self) -> None:
        """Called at half the comment interval: writes one where nothing was written since the last call."""
        if self._fresh:
            self._fresh = False
        elif not self.over and not self._backlog and self.peer.writable:
            self.peer.write(_COMMENT)

    async def write_page(self, body: bytes, last: int) -> None:
        """A replay page, with backpressure: returns when the connection took it into its buffer."""
        await self.peer.drain()
        if not self.over:
            self._fresh = True
            self.peer.write_body(body)
            self.cursor = last
        # A peer that is gone takes everything at once: without a real pause here a long replay would starve the
        # process.
        await asyncio.sleep(0)

    async def write_backlog(self) -> None:
        """Everything that waits, in joined writes; then the end, if one was asked for."""
        while self._backlog and not self.over:
            await self.peer.drain()
            if self._backlog:
                self._fresh = True
                self.peer.write(self._take())
        if self._last is not None:
            self.end(closing(self._last))

    def _take(self) -> bytes:
        """At least one chunk, else as many as fit in one write. HTTP chunks may be joined."""
        parts = [self._backlog.popleft()]
        size = len(parts[0])
        while self._backlog and size + len(self._backlog[0]) <= _ONE_WRITE:
            parts.append(self._backlog.popleft())
            size += len(parts[-1])
        self.size -= size
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def changed(self) -> None:
        """Until there is something to do: a backlog, a replay, the end."""
        if self._backlog or self._last or self.over or not self.joined:
            return
        self._wake = asyncio.get_running_loop().create_future()
        try:
            await self._wake
        finally:
            self._wake = None

    def _drop(self) -> None:
        self._backlog.clear()
        self.size = 0
        self._notify()

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


_COMMENT = chunk_of(COMMENT)
