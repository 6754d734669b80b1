"""What arrived ahead of its turn while a jump is open: events by sequence, temporary frames behind the event they
came after."""

from services.gateway.sse.live import Frame

_EVENT_COST = 200
"""Bytes of bookkeeping an entry costs beside its own, so that many small ones are bounded too."""


class Held:
    """Bounded by bytes: `full` means that the jump must be healed another way. Frames keep their place among the
    events as they were received."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._events: dict[int, tuple[str, str | None, bytes]] = {}
        self._frames: dict[int, list[tuple[Frame, bytes]]] = {}
        self._size = 0
        self.highest = 0

    @property
    def events(self) -> bool:
        """Whether an event waits for others before it."""
        return bool(self._events)

    @property
    def waiting(self) -> bool:
        """Whether anything is held."""
        return self._size > 0

    @property
    def full(self) -> bool:
        return self._size > self._limit

    def add_event(self, sequence: int, type_: str, turn_id: str | None, envelope: bytes) -> None:
        if sequence not in self._events:
            self._events[sequence] = (type_, turn_id, envelope)
            self._size += len(envelope) + _EVENT_COST
            self.highest = max(self.highest, sequence)

    def add_frame(self, frame: Frame, raw: bytes) -> None:
        """Goes behind the highest event held so far."""
        self._frames.setdefault(self.highest, []).append((frame, raw))
        self._size += len(raw) + _EVENT_COST

    def take_event(self, sequence: int) -> tuple[str, str | None, bytes] | None:
        """The event with that sequence, if it is here."""
        event = self._events.pop(sequence, None)
        if event is not None:
            self._size -= len(event[2]) + _EVENT_COST
        return event

    def take_frames(self, upto: int) -> list[tuple[Frame, bytes]]:
        """Frames whose event has passed, in the order of arrival."""
        taken = []
        for place in sorted(place for place in self._frames if place <= upto):
            for frame, raw in self._frames.pop(place):
                taken.append((frame, raw))
                self._size -= len(raw) + _EVENT_COST
        return taken

    def drop_upto(self, sequence: int) -> None:
        """Events that came another way."""
        for passed in [s for s in self._events if s <= sequence]:
            self.take_event(passed)

    def clear(self) -> None:
        self._events.clear()
        self._frames.clear()
        self._size = 0
        self.highest = 0
