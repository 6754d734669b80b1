"""The number line of one session as this gateway's viewers see it.

Subscribed first, told the head second, it then merges by sequence: an event that is next goes on, an older one is a
double, a later one is held while the jump is healed (`healing`). Nothing here waits. Temporary frames keep their place
among the events; which of them are seen is `showing`'s.
"""

from collections.abc import Callable

import msgspec
import structlog

from domain.events.envelope import peek
from domain.events.naming import is_type
from domain.events.turn import TERMINAL_TYPES
from services.gateway.sse import frames
from services.gateway.sse.fanout import FanOut
from services.gateway.sse.healing import Healing
from services.gateway.sse.held import Held
from services.gateway.sse.limits import Limits
from services.gateway.sse.live import UNREADABLE, decode_frame
from services.gateway.sse.meter import Meter
from services.gateway.sse.open_item import Room
from services.gateway.sse.pages import Pages
from services.gateway.sse.ports import OpenItems, ReplayPage, SessionHead
from services.gateway.sse.replays import Spawn
from services.gateway.sse.showing import LiveShow
from services.gateway.sse.viewer import Viewer

_log = structlog.get_logger(__name__)


class _Control(msgspec.Struct, frozen=True):
    reason: str


_decode_control = msgspec.json.Decoder(_Control).decode


def _turn_of(envelope: bytes) -> str | None:
    """None where nobody can read it: what is committed goes to viewers whatever it is, or a stream would end there."""
    try:
        return peek(envelope).turn_id
    except UNREADABLE:
        return None


class SessionFeed:
    """Implements `ports.Listener` for one session with local viewers.

    `edge` is the last sequence that was accepted, None until the first head. Joined viewers have been given everything
    up to `shown`, all others pull replay pages until they have. `ended`: why all streams of this feed are to end.
    """

    def __init__(
        self,
        session_id: str,
        pages: Pages,
        limits: Limits,
        check: Callable[[str, float], None],
        spawn: "Spawn",
        revoked: Callable[[str], None],
        open_items: OpenItems | None,
        room: Room,
        meter: Meter,
    ) -> None:
        """`check(session_id, delay)` asks for the head after a delay; `spawn` runs a task in the hub's group;
        `revoked(session_id)`: some right to read it may be gone; `open_items`: who else knows what is open."""
        self.session_id = session_id
        self.pages = pages
        self.edge: int | None = None
        self.closed = False
        self.ended: frames.ClosingReason | None = None
        self._check = check
        self._meter = meter
        self._revoked = revoked
        self._limits = limits
        self._out = FanOut()
        # With a whole page it must fit a viewer's buffer, since both may be let go in one loop step.
        self._held = Held(limits.viewer_buffer_bytes // 4)
        self._live = LiveShow(session_id, self._out, room, open_items, spawn, meter)
        self._healing = Healing(session_id, self, pages, limits, spawn, meter)

    @property
    def shown(self) -> int:
        """The last sequence that joined viewers have been given."""
        return self._out.shown

    # What the subscription brings ----------------------------------------------------------------------------------

    def on_event(self, envelope: bytes) -> None:
        try:
            event = peek(envelope)
        except UNREADABLE:
            _log.warning("published event is not an envelope", session_id=self.session_id, size=len(envelope))
            # If it is one all the same, the store has it.
            self._check(self.session_id, 0.0)
            return
        if not (frames.one_line(envelope) and is_type(event.type)):
            # Nothing of ours looks like that. The store has the event, if there is one.
            self._check(self.session_id, 0.0)
        elif self.edge is None or event.sequence > self.edge + 1:
            self._held.add_event(event.sequence, event.type, event.turn_id, envelope)
            self._healing.want(event.sequence)
            self._bound_held()
        elif event.sequence == self.edge + 1:
            self._accept(event.sequence, event.type, event.turn_id, envelope)
            if self._held.waiting:
                self._release()
        else:
            # It came by the replay, before this feed began perhaps; frames of its item may still be on their way.
            self._live.observe(event.type, event.turn_id, envelope)

    def on_live(self, frame: bytes) -> None:
        if not frames.one_line(frame):
            return
        try:
            seen = decode_frame(frame)
        except UNREADABLE:
            _log.warning("published frame is not a frame", session_id=self.session_id, size=len(frame))
            return
        if self.edge is None or self._held.events:
            self._held.add_frame(seen, frame)
            self._bound_held()
        else:
            self._live.show(seen, frame)

    def on_control(self, message: bytes) -> None:
        try:
            revoked = _decode_control(message).reason == "revoked"
        except UNREADABLE:
            return
        if revoked:
            self._revoked(self.session_id)
        else:
            self._check(self.session_id, 0.0)

    def on_gap(self) -> None:
        self._live.doubt()
        self._check(self.session_id, 0.0)

    # What the store says -------------------------------------------------------------------------------------------

    def learn(self, head: SessionHead) -> None:
        """A head read after the subscription was live. The first one is where the feed begins."""
        last = head.last_sequence
        if self.edge is None:
            self.edge = last
            self._out.begin(last)
            self._live.keep_early(self._held.take_frames(last))
            self._release()
        if head.closed and last == self.edge:
            self.closed = True
            self._out.end("closed", after_backlog=True)
        self._healing.want(last)
        self._live.settle(active=head.active_turn_id is not None)

    # Viewers -------------------------------------------------------------------------------------------------------

    def join(self, viewer: Viewer) -> bool:
        """From now on the viewer is given what comes, if it has everything that was shown; first of all what is open.
        (What is found out about open items later is shown to all who have joined.)"""
        if self.edge is None or viewer.cursor < self.shown:
            return False
        self._out.join(viewer)
        if not viewer.over and (chunk := self._live.for_joiner()) is not None:
            viewer.push(chunk, viewer.cursor)
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
        self._live.stop()
        self._healing.stop()
        self.pages.forget()

    # Merge ---------------------------------------------------------------------------------------------------------

    def fill(self, page: ReplayPage) -> None:
        """See `healing.Line`."""
        for viewer in self._out.viewers():
            if not viewer.fits(len(page.body)):
                self._out.let_pull(viewer)
        for block in frames.blocks(page.body):
            self._accept(block.sequence, block.type, _turn_of(block.envelope), block.envelope, block.bytes)
        if page.closed:
            self._check(self.session_id, 0.0)
        self._release()

    def skip(self, head: int) -> None:
        """See `healing.Line`. Every viewer pulls with its own backpressure."""
        self._live.forget()
        self.pages.forget()
        self._check(self.session_id, 0.0)
        self.edge = head
        self._out.begin(head)
        for viewer in self._out.viewers():
            if viewer.cursor < head:
                self._out.let_pull(viewer)
        self._release()

    def disbelieve(self) -> None:
        """See `healing.Line`."""
        self._held.clear()

    def _bound_held(self) -> None:
        """Give up what is held when it is too much: the replay brings the events again, the frames are lost."""
        if self._held.full:
            self._held.clear()
            self._live.forget()

    def _accept(self, sequence: int, type_: str, turn_id: str | None, envelope: bytes, block: bytes = b"") -> None:
        self.edge = sequence
        self._live.observe(type_, turn_id, envelope)
        self._meter.event(envelope)
        if not block:
            block = frames.event(sequence, type_, envelope)
        if type_ == "session.erased":
            self.pages.forget()
        self.pages.tail.append(sequence, block)
        self._out.event(sequence, block)
        if self._held.waiting:
            self._show_held(sequence)
        if type_ in TERMINAL_TYPES:
            # The next turn's first events may have been lost right behind it, and nothing else may come for long.
            self._check(self.session_id, self._limits.recheck_seconds)
        elif type_ == "session.closed":
            self._check(self.session_id, 0.0)

    def _release(self) -> None:
        """Let go on what is next now."""
        assert self.edge is not None
        self._held.drop_upto(self.edge)
        self._show_held(self.edge)
        while (event := self._held.take_event(self.edge + 1)) is not None:
            self._accept(self.edge + 1, *event)

    def _show_held(self, upto: int) -> None:
        for frame, raw in self._held.take_frames(upto):
            self._live.show(frame, raw)
