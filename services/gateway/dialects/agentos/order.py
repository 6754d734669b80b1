"""One turn's frames put into `(attempt, frame)` order, whether they come live, by replay or both.

The numbers of an attempt are dense, so a frame is let go on when all before it have been. A missing one belongs to a
text that is still open: it comes with the item's completion at the latest. Where the attempt died first nobody has it
any more; it is let go on as `Lost`, so that everything after it keeps its place.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from domain.clock import parse_rfc3339
from domain.events import registry
from domain.events import turn as turn_events
from domain.events.base import Event, ExecutorEvent
from domain.events.item import ItemCompleted, ItemSuperseded
from domain.expand import pieces
from domain.frames import LiveFrame, LiveItemDelta, LiveItemSnapshot, LiveItemStarted
from domain.ids import FRAMES_PER_ATTEMPT, Micros


class Envelope(msgspec.Struct, frozen=True):
    """A committed event as it stands in replay pages and on streams."""

    sequence: int
    type: str
    created_at: str
    data: msgspec.Raw
    schema_version: int = 1
    turn_id: str | None = None

    def event(self) -> Event:
        """The payload, upcast to the newest version."""
        return registry.decode(self.type, self.schema_version, bytes(self.data))


class _LiveEnvelope(msgspec.Struct, frozen=True):
    type: str
    data: msgspec.Raw
    turn_id: str | None = None


class Lost(msgspec.Struct, frozen=True):
    """A piece of a text whose attempt died before the text was whole."""


class Placed(NamedTuple):
    """A frame in its place, or an event that takes none (`frame` None). `at`: when the newest committed event up to
    here was written, so that it is the same live and replayed. `outside`: an end that the executor did not write."""

    attempt: int
    frame: int | None
    data: Event | LiveFrame | Lost
    at: Micros
    sequence: int = 0
    outside: bool = False


_decode_envelope = msgspec.json.Decoder(Envelope).decode
_decode_envelopes = msgspec.json.Decoder(list[Envelope]).decode
_decode_live = msgspec.json.Decoder(_LiveEnvelope).decode
_LIVE: dict[str, type[LiveFrame]] = {kind.type: kind for kind in (LiveItemStarted, LiveItemDelta, LiveItemSnapshot)}


def envelope_of(wire: bytes) -> Envelope:
    """Raises msgspec.MsgspecError."""
    return _decode_envelope(wire)


def envelopes_of(items: bytes) -> list[Envelope]:
    """Those of a JSON array's items. Raises msgspec.MsgspecError."""
    return _decode_envelopes(b"[" + items + b"]")


class InOrder:
    """Frames of one turn go in as they come, and come out in order. Give it the turn's committed events by `event`, in
    sequence; temporary frames by `live`, in any order, doubled or missing."""

    def __init__(self, turn_id: str) -> None:
        self._turn_id = turn_id
        self._attempt = 0
        self._next = 0
        self._committed = -1
        self._held: dict[int, tuple[Event | LiveFrame, Micros, int]] = {}
        self._at = Micros(0)
        self.over = False

    def event(self, envelope: Envelope) -> Iterator[Placed]:
        """What can go on now that this event of the turn is known."""
        if envelope.turn_id != self._turn_id:
            return
        at, data = parse_rfc3339(envelope.created_at), envelope.event()
        if isinstance(data, ItemSuperseded):
            # Written by who takes over: what the dead attempt has left comes first.
            yield from self._close()
            yield Placed(self._attempt, None, data, at, envelope.sequence)
        elif isinstance(data, turn_events.TurnStarted):
            if data.attempt != self._attempt:
                yield from self._close()
            self._attempt, self._next, self._committed = data.attempt, data.frame_base, -1
            self._put(data.frame_base, data, at, envelope.sequence)
        elif isinstance(data, ItemCompleted):
            self._item(data)
            self._put(data.frame, data, at, envelope.sequence)
        elif (frame := self._frame_of(data)) is not None:
            self._put(frame, data, at, envelope.sequence)
        elif isinstance(data, turn_events.TERMINAL):
            yield from self._close()
            self._at = at
            outside = (self._attempt + 1) * FRAMES_PER_ATTEMPT
            yield Placed(self._attempt, outside, data, at, envelope.sequence, outside=True)
        else:
            yield Placed(self._attempt, None, data, at, envelope.sequence)
        yield from self._ready()
        if isinstance(data, turn_events.TERMINAL):
            # Everything was committed before it; what is not here will not come.
            yield from self._close()
            self.over = True

    def live(self, wire: bytes) -> Iterator[Placed]:
        """The same for a temporary frame."""
        said = _decode_live(wire)
        kind = _LIVE.get(said.type)
        if kind is None or said.turn_id != self._turn_id or self.over:
            return
        frame = msgspec.json.decode(said.data, type=kind)
        if isinstance(frame, LiveItemStarted | LiveItemDelta) and frame.attempt == self._attempt:
            self._put(frame.frame, frame, self._at, 0)
        elif isinstance(frame, LiveItemSnapshot) and frame.attempt == self._attempt:
            self._item(frame)
        yield from self._ready()

    def _frame_of(self, data: Event) -> int | None:
        """Its number in this attempt; None for what has none, or one beyond it."""
        if isinstance(data, ExecutorEvent | turn_events.TurnFailed | turn_events.TurnInterrupted):
            frame = data.frame
            if frame is not None and frame < (self._attempt + 1) * FRAMES_PER_ATTEMPT:
                return frame
        return None

    def _item(self, item: ItemCompleted | LiveItemSnapshot) -> None:
        for number, frame in pieces(item):
            self._put(number, frame, self._at, 0)

    def _put(self, frame: int, data: Event | LiveFrame, at: Micros, sequence: int) -> None:
        if sequence:
            self._committed = max(self._committed, frame)
        if frame >= self._next:
            self._held.setdefault(frame, (data, at, sequence))

    def _ready(self) -> Iterator[Placed]:
        while (held := self._held.pop(self._next, None)) is not None:
            yield self._placed(*held)

    def _close(self) -> Iterator[Placed]:
        """The attempt is over: up to its last committed frame whatever is missing is lost; behind that nothing was."""
        while self._next <= self._committed:
            held = self._held.pop(self._next, None)
            yield self._placed(*held) if held is not None else self._placed(Lost(), self._at, 0)
        self._held.clear()

    def _placed(self, data: Event | LiveFrame | Lost, at: Micros, sequence: int) -> Placed:
        if sequence:
            self._at = at
        placed = Placed(self._attempt, self._next, data, self._at, sequence)
        self._next += 1
        return placed
