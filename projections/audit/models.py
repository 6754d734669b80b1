"""Read models against a fresh fold: every row, every column, in constant memory.

A row says by `last_sequence` as of which event it is what it is. So rows come in the order of that column, and each is
compared right after the fold has taken that event; what was compared is let go. A row that is stale is found when a
later event of its turn comes, or at the end.
"""

from operator import attrgetter
from typing import Any

import msgspec

from domain.events.base import Event
from domain.events.item import ItemCompleted, ItemSuperseded
from domain.events.turn import TurnQueued, TurnSuperseded
from domain.ids import Micros, Sequence, TurnId
from domain.message import Message, TurnMessages
from domain.ports import AppliedEvent
from domain.turn import Turn
from domain.turn_row import CHANGING, FIXED
from projections.audit.findings import Findings

TURN_COLUMNS = (*FIXED, *CHANGING)
MESSAGE_COLUMNS = (
    "message_id",
    "turn_id",
    "enqueue_sequence",
    "ordinal",
    "role",
    "parts",
    "items",
    "status",
    "first_sequence",
    "last_sequence",
    "created_at",
)

Row = tuple[Any, ...]
"""A stored row: its columns in the order of TURN_COLUMNS or MESSAGE_COLUMNS, ids as text, json as exact bytes, times in
microseconds."""

TURN_PLACE = TURN_COLUMNS.index("last_sequence")
MESSAGE_PLACE = MESSAGE_COLUMNS.index("last_sequence")

_SHOWN = frozenset({TurnQueued, ItemCompleted, ItemSuperseded, TurnSuperseded})
_encode = msgspec.json.Encoder().encode


_turn_values = attrgetter(*TURN_COLUMNS)
_turn_structures = [TURN_COLUMNS.index(name) for name in ("forked_from", "error", "usage", "requirements", "progress")]


def turn_row(state: Turn) -> Row:
    """The row that this turn must have: what `domain.turn_row.columns` writes, faster for a single one."""
    row = list(_turn_values(state))
    for place in _turn_structures:
        row[place] = _encode(row[place]) if row[place] else None
    return tuple(row)


def message_row(message: Message) -> Row:
    """The row that this message must have."""
    return (
        message.message_id,
        message.turn_id,
        message.enqueue_sequence,
        message.ordinal,
        message.role,
        _encode(message.parts),
        _encode(message.items) if message.items else None,
        message.status,
        message.first_sequence,
        message.last_sequence,
        message.created_at,
    )


def difference(names: tuple[str, ...], stored: Row, fresh: Row) -> str:
    """Which columns differ; their values may be user content and are not told."""
    return ", ".join(name for name, a, b in zip(names, stored, fresh, strict=True) if a != b)


class TurnRows:
    """Compares rows of `turns`. `_seen` are turns that had a row: -1 where it was a finding, else the sequence."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._seen: dict[str, int] = {}

    def compare(self, row: Row, turns: dict[TurnId, Turn]) -> Turn | None:
        """The turn that has this row as of the last folded event."""
        turn_id, place = row[0], row[TURN_PLACE]
        subject = turns.get(turn_id)
        if subject is None or subject.last_sequence != place:
            self._seen[turn_id] = -1
            self._findings.add(place, "turns", f"the log has no event of turn {turn_id} at {place}: last_sequence")
            return None
        self._seen[turn_id] = place
        fresh = turn_row(subject)
        if row != fresh:
            self._seen[turn_id] = -1
            self._findings.add(place, "turns", f"turn {turn_id}: {difference(TURN_COLUMNS, row, fresh)}")
        return subject

    def settled(self, turn_id: TurnId) -> None:
        """The turn is over and compared: nothing of it is kept."""
        self._seen.pop(turn_id, None)

    def went_on(self, turn_id: TurnId, sequence: int) -> None:
        """An event of a turn that is settled."""
        self._findings.add(sequence, "turns", f"turn {turn_id}: its row is older than this event")

    def end(self, turns: dict[TurnId, Turn]) -> None:
        """Turns without a row, and rows that are older than their turn."""
        for turn_id, subject in turns.items():
            seen = self._seen.get(turn_id)
            if seen is None:
                self._findings.add(subject.last_sequence, "turns", f"turn {turn_id} has no row")
            elif 0 <= seen < subject.last_sequence:
                self.went_on(turn_id, subject.last_sequence)


class MessageRows:
    """Folds messages and compares their rows. `_open` are turns of which a message has no equal row yet, or that may
    still get one."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._open: dict[TurnId, TurnMessages] = {}
        self._due: dict[str, int] = {}
        self._wrong: set[str] = set()

    def fold(self, event: Event, subject: Turn, sequence: int, event_id: str, at: int) -> None:
        """Apply an event of a turn."""
        if type(event) not in _SHOWN or (type(event) is ItemCompleted and event.kind != "text"):
            return
        turn_id = subject.turn_id
        messages = self._open.get(turn_id)
        if messages is None:
            if not isinstance(event, TurnQueued):
                # Every row of the turn has been found to be as of an earlier event.
                self._findings.add(sequence, "messages", f"turn {turn_id}: {event.type}, and its rows are older")
                return
            messages = self._open[turn_id] = TurnMessages(turn_id, subject.enqueue_sequence, [])
        messages.touched = {}
        messages.apply(AppliedEvent(Sequence(sequence), event_id, turn_id, Micros(at), event))
        for message_id in messages.touched:
            self._due[message_id] = sequence

    def compare(self, row: Row) -> None:
        """A row as it must be after the last folded event."""
        message_id, place = row[0], row[MESSAGE_PLACE]
        messages = self._open.get(row[1])
        message = None if messages is None else messages.messages.get(message_id)
        if message is None or message.last_sequence != place:
            self._wrong.add(message_id)
            self._due.pop(message_id, None)
            self._findings.add(place, "messages", f"the log has no message {message_id} of turn {row[1]} at {place}")
            return
        self._due.pop(message_id, None)
        fresh = message_row(message)
        if row != fresh:
            self._findings.add(place, "messages", f"message {message_id}: {difference(MESSAGE_COLUMNS, row, fresh)}")

    def settled(self, turn_id: TurnId) -> None:
        """The turn is over and compared: its messages are let go where they are, too."""
        messages = self._open.get(turn_id)
        if messages is not None and not any(message_id in self._due for message_id in messages.messages):
            del self._open[turn_id]

    def end(self, erased_to: int) -> None:
        """Messages without a row, or with one that is older; an erase removes rows."""
        for message_id, sequence in self._due.items():
            if message_id not in self._wrong and sequence > erased_to:
                self._findings.add(sequence, "messages", f"message {message_id} has no row as of {sequence}")
