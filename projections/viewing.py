"""What viewers of a session saw, in the order in which they saw it, from its events alone.

Within a leg of a turn (from a start to its end, its pause or the next start) the frame numbers tell the order, deltas
between events included. Events without a number stand where their sequence puts them. What had no number and was never
committed (tool progress, what a dead attempt had not committed) is not in the log.
"""

from collections.abc import Iterator

import msgspec

from domain.events.envelope import StoredEvent, envelope_of
from domain.events.turn import TERMINAL_TYPES
from domain.expand import TurnFrame, expand
from domain.ids import Micros, Sequence

_ENDS = TERMINAL_TYPES | {"turn.paused", "turn.released"}


class Seen(msgspec.Struct, frozen=True):
    """One frame as viewers got it. `at`: of a temporary frame an estimate, evenly between the events around it."""

    type: str
    wire: bytes
    at: Micros
    sequence: Sequence | None = None


class Viewing:
    """Takes events in sequence and gives frames; holds the events of one leg."""

    def __init__(self) -> None:
        self._leg: list[StoredEvent] = []
        self._others: list[StoredEvent] = []
        self._turn_id: str | None = None
        self._at = Micros(0)

    def take(self, event: StoredEvent) -> Iterator[Seen]:
        """The frames that are in their place now."""
        if event.type == "turn.started":
            yield from self.rest()
            self._turn_id = event.turn_id
        if self._turn_id is None:
            self._at = event.created_at
            yield _event(event)
            return
        mine = event.turn_id == self._turn_id
        (self._leg if mine else self._others).append(event)
        if mine and event.type in _ENDS:
            yield from self.rest()

    def rest(self) -> Iterator[Seen]:
        """The frames of a leg that is over, or of which no more is to be shown."""
        if self._turn_id is None:
            return
        numbered = expand(self._leg)
        times = {event.sequence: event.created_at for event in self._leg}
        shown = {frame.sequence for frame in numbered if frame.sequence is not None}
        unnumbered = [*self._others, *(event for event in self._leg if event.sequence not in shown)]
        others = iter(sorted(unnumbered, key=lambda event: event.sequence))
        waiting = next(others, None)
        between: list[TurnFrame] = []
        for frame in numbered:
            if frame.sequence is None:
                between.append(frame)
                continue
            yield from self._spread(between, times[frame.sequence])
            between = []
            while waiting is not None and waiting.sequence < frame.sequence:
                yield _event(waiting)
                waiting = next(others, None)
            self._at = times[frame.sequence]
            yield Seen(frame.type, frame.wire, self._at, frame.sequence)
        while waiting is not None:
            self._at = waiting.created_at
            yield _event(waiting)
            waiting = next(others, None)
        self._leg, self._others, self._turn_id = [], [], None

    def _spread(self, frames: list[TurnFrame], until: Micros) -> Iterator[Seen]:
        for number, frame in enumerate(frames, 1):
            at = self._at + (until - self._at) * number // (len(frames) + 1)
            yield Seen(frame.type, frame.wire, Micros(at))


def _event(event: StoredEvent) -> Seen:
    return Seen(event.type, envelope_of(event), event.created_at, event.sequence)
