"""From one feed to its joined viewers: what a loop step brings is joined, chunk-coded once and handed to all."""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import NamedTuple

from services.gateway.sse.frames import ClosingReason, closing
from services.gateway.sse.ports import chunk_of
from services.gateway.sse.viewer import Viewer

_FLUSH_BYTES = 256 * 1024


class _Entry(NamedTuple):
    """Something to show. `sequence` 0: a temporary frame, for those who had joined at `tick`: who came later has it in
    the snapshot of its join."""

    sequence: int
    tick: int
    block: bytes


class FanOut:
    """`shown` is the last sequence that was handed to viewers, which happens at the end of a loop step; `tick` grows
    with each join. A joined viewer has been given everything up to `shown` that it may see."""

    def __init__(self) -> None:
        self.shown = 0
        self.tick = 1
        self._viewers: set[Viewer] = set()
        self._pending: list[_Entry] = []
        self._pending_bytes = 0
        self._last = 0
        self._soon: Callable[[Callable[[], None]], object] = asyncio.get_running_loop().call_soon

    def begin(self, sequence: int) -> None:
        """Everything up to there is shown by other means."""
        self.flush()
        self.shown = self._last = sequence

    def join(self, viewer: Viewer) -> None:
        """The viewer gets the events that wait to be flushed, and whatever comes from now on."""
        self.tick += 1
        viewer.joined = True
        viewer.joined_at = self.tick
        self._viewers.add(viewer)
        self.flush()

    def leave(self, viewer: Viewer) -> None:
        self._viewers.discard(viewer)

    def let_pull(self, viewer: Viewer) -> None:
        """The viewer gets on by replay, with its own backpressure."""
        self._viewers.discard(viewer)
        viewer.leave()

    def viewers(self) -> Iterator[Viewer]:
        """Joined ones; they may leave meanwhile."""
        return iter(list(self._viewers))

    def end(self, reason: ClosingReason, *, after_backlog: bool = False) -> None:
        """End every joined stream, at once or when all that waits for it is written."""
        self.flush()
        for viewer in self._viewers:
            if after_backlog:
                viewer.end_after_backlog(reason)
            else:
                viewer.end(closing(reason))

    def event(self, sequence: int, block: bytes) -> None:
        """The next committed event."""
        self._last = sequence
        self._add(_Entry(sequence, 0, block))

    def frame(self, tick: int, block: bytes) -> None:
        """A temporary frame for those who have been there since that tick."""
        self._add(_Entry(0, tick, block))

    def clear(self) -> None:
        self._pending.clear()

    def flush(self) -> None:
        """Give every viewer what has come."""
        entries, self._pending, self._pending_bytes = self._pending, [], 0
        if not entries:
            return
        before, self.shown = self.shown, self._last
        if not self._viewers:
            return
        ticks = sorted({entry.tick for entry in entries if not entry.sequence})
        chunk = chunk_of(b"".join([entry.block for entry in entries]))
        parts: dict[tuple[int, int], bytes] = {}
        # A push may end a viewer but never takes it out of this set: its own task does that later.
        for viewer in self._viewers:
            if viewer.cursor == before and (not ticks or viewer.joined_at <= ticks[0]):
                viewer.push(chunk, self.shown)
            else:
                self._push_part(viewer, entries, parts, bisect_left(ticks, viewer.joined_at))

    def _add(self, entry: _Entry) -> None:
        if not self._pending:
            self._soon(self.flush)
        self._pending.append(entry)
        self._pending_bytes += len(entry.block)
        if self._pending_bytes > _FLUSH_BYTES:
            self.flush()

    def _push_part(
        self, viewer: Viewer, entries: list[_Entry], parts: dict[tuple[int, int], bytes], unseen: int
    ) -> None:
        """For a viewer that joined after some of these frames (the first `unseen` ticks), or knows more than the
        feed."""
        key = (viewer.cursor, unseen)
        part = parts.get(key)
        if part is None:
            blocks = [entry.block for entry in entries if _may_see(viewer, entry)]
            part = parts[key] = chunk_of(b"".join(blocks)) if blocks else b""
        last = max(viewer.cursor, self.shown)
        if part:
            viewer.push(part, last)
        else:
            viewer.cursor = last


def _may_see(viewer: Viewer, entry: _Entry) -> bool:
    if entry.sequence:
        return entry.sequence > viewer.cursor
    return viewer.joined_at <= entry.tick
