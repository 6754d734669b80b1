"""The number line of one session as this gateway's viewers see it.

Subscribed first, told the head second, it then merges by sequence: an event that is next goes on, an older one is a
double, a later one is held while the jump is healed. Nothing here waits but the healing task.
"""

import asyncio
from asyncio import Task
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import msgspec
import structlog

from domain.errors import SessionNotFound, Unavailable
from domain.events.envelope import peek
from domain.events.turn import TERMINAL_TYPES
from services.gateway.sse import frames
from services.gateway.sse.fanout import FanOut
from services.gateway.sse.held import Held
from services.gateway.sse.limits import Limits
from services.gateway.sse.live import WATCHED, Frame, LiveFrames, Shown, decode_frame
from services.gateway.sse.meter import Meter
from services.gateway.sse.open_item import Room
from services.gateway.sse.ports import OpenItems, OpenItemsUnavailable, ReplayPage, SessionHead, chunk_of
from services.gateway.sse.replays import Replays
from services.gateway.sse.viewer import Viewer

_log = structlog.get_logger(__name__)

_AGAIN_AFTER = (0.02, 0.1)
"""Seconds before the second and the third look for what is open."""

_DOUBTS = 50
"""Empty replays in a row until what was told is not believed any more."""


class _Control(msgspec.Struct, frozen=True):
    reason: str


_decode_control = msgspec.json.Decoder(_Control).decode


class SessionFeed:
    """Implements `ports.Listener` for one session with local viewers.

    `edge` is the last sequence that was accepted, None until the first head. Joined viewers have been given everything
    up to `shown`, all others pull replay pages until they have. `ended`: why all streams of this feed are to end.
    """

    def __init__(
        self,
        session_id: str,
        replays: Replays,
        limits: Limits,
        check: Callable[[str, float], None],
        spawn: "Callable[[Coroutine[Any, Any, None]], Task[None]]",
        revoked: Callable[[str], None],
        open_items: OpenItems | None,
        room: Room,
        meter: Meter,
    ) -> None:
        """`check(session_id, delay)` asks for the head after a delay; `spawn` runs a task in the hub's group;
        `revoked(session_id)`: some right to read it may be gone; `open_items`: who else knows what is open."""
        self.session_id = session_id
        self.edge: int | None = None
        self.closed = False
        self.ended: frames.ClosingReason | None = None
        self._check = check
        self._spawn = spawn
        self._meter = meter
        self._revoked = revoked
        self._replays = replays
        self._limits = limits
        self._out = FanOut()
        # With a whole page it must fit a viewer's buffer, since both may be let go in one loop step.
        self._held = Held(limits.viewer_buffer_bytes // 4)
        self._live = LiveFrames(room)
        self._early: list[tuple[Frame, bytes]] = []
        self._unsure = True
        self._open_items = open_items
        self._reading: Task[None] | None = None
        self._wanted = 0
        self._doubts = 0
        self._healing: Task[None] | None = None

    @property
    def shown(self) -> int:
        """The last sequence that joined viewers have been given."""
        return self._out.shown

    # What the subscription brings ----------------------------------------------------------------------------------

    def on_event(self, envelope: bytes) -> None:
        try:
            event = peek(envelope)
        except msgspec.MsgspecError:
            _log.warning("published event is not an envelope", session_id=self.session_id, size=len(envelope))
            return
        if not frames.one_line(envelope):
            # Nothing of ours looks like that. The store has the event, if there is one.
            self._check(self.session_id, 0.0)
        elif self.edge is None or event.sequence > self.edge + 1:
            self._held.add_event(event.sequence, event.type, event.turn_id, envelope)
            self._want(event.sequence)
            self._bound_held()
        elif event.sequence == self.edge + 1:
            self._accept(event.sequence, event.type, event.turn_id, envelope)
            if self._held.waiting:
                self._release()
        elif event.type in WATCHED:
            # It came by the replay, before this feed began perhaps; frames of its item may still be on their way.
            self._live.observe(event.type, event.turn_id, envelope)

    def on_live(self, frame: bytes) -> None:
        if not frames.one_line(frame):
            return
        try:
            seen = decode_frame(frame)
        except msgspec.MsgspecError:
            _log.warning("published frame is not a frame", session_id=self.session_id, size=len(frame))
            return
        if self.edge is None or self._held.events:
            self._held.add_frame(seen, frame)
            self._bound_held()
        else:
            self._show_frame(seen, frame)

    def on_control(self, message: bytes) -> None:
        try:
            revoked = _decode_control(message).reason == "revoked"
        except msgspec.MsgspecError:
            return
        if revoked:
            self._revoked(self.session_id)
        else:
            self._check(self.session_id, 0.0)

    def on_gap(self) -> None:
        self._unsure = True
        self._check(self.session_id, 0.0)

    # What the store says -------------------------------------------------------------------------------------------

    def learn(self, head: SessionHead) -> None:
        """A head read after the subscription was live. The first one is where the feed begins."""
        last = head.last_sequence
        if self.edge is None:
            self.edge = last
            self._out.begin(last)
            # Their items may be completed in what is behind us.
            self._early = self._held.take_frames(last)
            self._release()
        if head.closed and last == self.edge:
            self.closed = True
            self._out.end("closed", after_backlog=True)
        self._want(last)
        if self._unsure:
            self._unsure = False
            if head.active_turn_id is not None:
                self._read_open_items()

    # Viewers -------------------------------------------------------------------------------------------------------

    def join(self, viewer: Viewer) -> bool:
        """From now on the viewer is given what comes, if it has everything that was shown; first of all what is open.
        (What is found out about open items later is shown to all who have joined.)"""
        if self.edge is None or viewer.cursor < self.shown:
            return False
        self._out.join(viewer)
        if not viewer.over and (shown := self._live.for_joiner()):
            viewer.push(chunk_of(b"".join([frames.live(one.type, one.frame) for one in shown])), viewer.cursor)
        if self.closed:
            viewer.end_after_backlog("closed")
        return True

    def leave(self, viewer: Viewer) -> None:
        self._out.leave(viewer)

    def end_all(self, reason: frames.ClosingReason) -> None:
        """End every stream: joined ones now, those that still pull by their own task."""
        self.ended = reason
        self._out.end(reason)

    def stop(self) -> None:
        """The last viewer has gone."""
        self._held.clear()
        self._out.clear()
        self._live.forget()
        for task in (self._healing, self._reading):
            if task is not None:
                task.cancel()

    # Merge ---------------------------------------------------------------------------------------------------------

    def _bound_held(self) -> None:
        """Give up what is held when it is too much: the replay brings the events again, the frames are lost."""
        if self._held.full:
            self._held.clear()
            self._live.forget()
            self._unsure = True

    def _accept(self, sequence: int, type_: str, turn_id: str | None, envelope: bytes, block: bytes = b"") -> None:
        self.edge = sequence
        if type_ in WATCHED:
            self._live.observe(type_, turn_id, envelope)
        self._meter.event(envelope)
        self._out.event(sequence, block or frames.event(sequence, type_, envelope))
        if self._held.waiting:
            self._show_frames(self._held.take_frames(sequence))
        if type_ in TERMINAL_TYPES:
            # The next turn's first events may have been lost right behind it, and nothing else may come for long.
            self._check(self.session_id, self._limits.recheck_seconds)
        elif type_ == "session.closed":
            self._check(self.session_id, 0.0)

    def _release(self) -> None:
        """Let go on what is next now."""
        assert self.edge is not None
        self._held.drop_upto(self.edge)
        self._show_frames(self._held.take_frames(self.edge))
        while (event := self._held.take_event(self.edge + 1)) is not None:
            self._accept(self.edge + 1, *event)

    def _show_frames(self, taken: list[tuple[Frame, bytes]]) -> None:
        for frame, raw in taken:
            self._show_frame(frame, raw)

    def _show_frame(self, frame: Frame, raw: bytes) -> None:
        shown = self._live.admit(frame, raw, self._out.tick)
        self._show(shown)
        if shown and frame.type == "item.snapshot":
            self._meter.healed["roll_up"] += 1
        if self._live.hole:
            self._live.hole = False
            self._read_open_items()

    def _show(self, shown: Iterable[Shown]) -> None:
        for tick, type_, raw in shown:
            self._out.frame(tick, frames.live(type_, raw))

    # Open items ----------------------------------------------------------------------------------------------------

    def _read_open_items(self) -> None:
        if self._open_items is not None and self._reading is None:
            self._reading = self._spawn(self.read_open_items(self._open_items))

    async def read_open_items(self, source: OpenItems) -> None:
        """Close holes by what others kept. A frame may not have been kept yet a moment after it was published, hence
        the repeats; what is missing then waits for the next roll-up or the completion."""
        try:
            for pause in (0.0, *_AGAIN_AFTER):
                await asyncio.sleep(pause)
                early, self._early = self._early, []
                shown = self._live.merge(await source.read(self.session_id, early), self._out.tick)
                self._show(shown)
                self._meter.healed["open_items"] += bool(shown)
                if self._live.whole:
                    return
        except OpenItemsUnavailable:
            # Told of a gap when the broker is back.
            return
        except Exception:  # noqa: BLE001 - root of a task: viewers wait for the completion
            _log.exception("open items unknown", session_id=self.session_id)
        finally:
            self._reading = None
            self._early = []

    # Healing -------------------------------------------------------------------------------------------------------

    def _want(self, sequence: int) -> None:
        self._wanted = max(self._wanted, sequence)
        if self._healing is None and self.edge is not None and self._wanted > self.edge:
            self._healing = self._spawn(self.heal())

    async def heal(self) -> None:
        """Close the jump: hold for a moment, then one replay for all. What comes meanwhile is held in order."""
        pause, asked = self._limits.hold_seconds, False
        try:
            while True:
                await asyncio.sleep(pause)
                at = self.edge or 0
                if at >= self._wanted:
                    self._meter.healed["wait"] += not asked
                    return
                asked = True
                try:
                    pause = await self._heal_once(at)
                except SessionNotFound:
                    return
                except Unavailable as error:
                    pause = min(max(pause, 0.02) * 2, self._limits.heal_retry_seconds)
                    _log.warning("replay failed, trying again", session_id=self.session_id, after=at, error=error.code)
                except Exception:  # noqa: BLE001 - root of a task: the feed must go on trying
                    pause = self._limits.heal_retry_seconds
                    _log.exception("replay failed, trying again", session_id=self.session_id, after=at)
        finally:
            self._healing = None

    async def _heal_once(self, at: int) -> float:
        """Seconds to wait before the next look."""
        page = await self._replays.page(self.session_id, at)
        if self.edge != at:
            return 0.0
        if page.last == at:
            return self._doubt()
        self._doubts = 0
        if page.last >= page.head or page.last >= self._wanted:
            self._meter.healed["page"] += 1
            self._fill(page)
        else:
            self._meter.healed["pull"] += 1
            self._skip(page.head)
        if page.closed:
            self._check(self.session_id, 0.0)
        self._release()
        return 0.0

    def _doubt(self) -> float:
        """The store lacks what was told: read before it was committed, or published by somebody who never committed it.
        Seconds to wait before the next look."""
        self._doubts += 1
        if self._doubts == _DOUBTS:
            _log.warning("told of events that are not in the store", session_id=self.session_id, wanted=self._wanted)
            self._doubts = self._wanted = 0
            self._held.clear()
        return max(self._limits.hold_seconds, 0.01)

    def _fill(self, page: ReplayPage) -> None:
        """A jump that one page closes: viewers stay joined and miss no frame."""
        for viewer in self._out.viewers():
            if not viewer.fits(len(page.body)):
                self._out.let_pull(viewer)
        for block in frames.blocks(page.body):
            self._accept(block.sequence, block.type, peek(block.envelope).turn_id, block.envelope, block.bytes)

    def _skip(self, head: int) -> None:
        """A larger jump: the feed goes to the head, and every viewer pulls what it lacks with its own backpressure."""
        self._live.forget()
        self._unsure = True
        self._check(self.session_id, 0.0)
        self.edge = head
        self._out.begin(head)
        for viewer in self._out.viewers():
            if viewer.cursor < head:
                self._out.let_pull(viewer)
