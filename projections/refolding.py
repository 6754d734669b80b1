"""Read models of sessions from event zero: what a rebuild tells a projection, and the rows that must come of it.

What the new rows are compared with never saw the database: they are read back and compared page by page, right after
they were written. Only what has been found equal is let go, so that memory does not grow with a session's texts; when
a later event concerns it, it is taken back from its row.
"""

from collections.abc import Collection, Iterable
from collections.abc import Sequence as Many
from typing import Any, Protocol

from domain.events.registry import UnknownEvent
from domain.events.turn import TurnQueued
from domain.ids import EnqueueSequence, Generation, MessageId, Micros, Sequence, SessionId, TurnId
from domain.message import Message, TurnMessages
from domain.ports import AppliedEvent, SessionChange
from domain.session import SessionState, evolve
from domain.turn import Turn
from domain.turn_row import from_row
from projections.audit.models import MESSAGE_COLUMNS, TURN_COLUMNS, Row, message_row, turn_row
from projections.messages.projection import stored_message

COLUMNS: dict[str, tuple[str, ...]] = {"turns": TURN_COLUMNS, "messages": MESSAGE_COLUMNS}
"""Read model -> its columns but for session and generation; the first one is the row's id."""

EVENT_TYPES: dict[str, tuple[str, ...] | None] = {
    "turns": None,
    "messages": ("turn.queued", "item.completed", "item.superseded", "turn.superseded"),
}
"""Read model -> the events it is made of (None: all)."""


class Refold(Protocol):
    """One session, page by page from its first event. `made`: rows there must be. `touched`: rows that the last page
    made or changed. `first`: nothing has been let go yet."""

    made: int
    touched: set[str]
    first: bool

    def lacks(self, events: Many[AppliedEvent]) -> list[int]:
        """Turns, by their place in the queue, that these events concern and that were let go: to be taken back."""
        ...

    def take_back(self, rows: Iterable[Any]) -> None:
        """Rows of such turns, with their columns by name: of a read model of turns one each, of messages all."""
        ...

    def change(self, events: Many[AppliedEvent], hidden: Collection[str]) -> SessionChange:
        """What these events, which follow those before, are to a projection; no message shows those in `hidden`. Raises
        IllegalTransition on a log that cannot be."""
        ...

    def row(self, row_id: str) -> Row | None:
        """That row as of the last event, if it was not let go."""
        ...

    def let_go(self) -> None:
        """What the last page made has been found to be written so."""
        ...


def refold(name: str, session_id: SessionId, generation: Generation) -> Refold:
    """For the rows of that read model, from the beginning."""
    return (RefoldedTurns if name == "turns" else RefoldedMessages)(session_id, generation)


class RefoldedTurns:
    """Keeps turns that are not over, and of the others the place in the queue."""

    def __init__(self, session_id: SessionId, generation: Generation) -> None:
        self.made = 0
        self.touched: set[str] = set()
        self.first = True
        self._session_id = session_id
        self._generation = generation
        self._state = SessionState(session_id=session_id, turns={})
        self._over: dict[TurnId, int] = {}
        self._due: dict[str, Row] = {}

    def lacks(self, events: Many[AppliedEvent]) -> list[int]:
        over = self._over
        return list({over[event.turn_id]: None for event in events if event.turn_id in over}) if over else []

    def take_back(self, rows: Iterable[Any]) -> None:
        for row in rows:
            turn = from_row(row)
            self._state.turns[turn.turn_id] = turn
            self._over.pop(turn.turn_id, None)

    def change(self, events: Many[AppliedEvent], hidden: Collection[str]) -> SessionChange:
        state = self._state
        turns = state.turns
        before: dict[TurnId, Turn | None] = {}
        for event in events:
            turn_id = event.turn_id
            if turn_id is not None and turn_id not in before:
                before[turn_id] = turns.get(turn_id)
            evolve(state, event.data, turn_id, event.sequence, Micros(event.created_at))
        after = {turn_id: turns[turn_id] for turn_id in before}
        self.made += sum(turn is None for turn in before.values())
        # Made before the projection sees a turn, so that one which changes what it is handed is found.
        self._due = {turn_id: turn_row(turn) for turn_id, turn in after.items()}
        self.touched = set(after)
        state.touched.clear()
        return SessionChange(self._session_id, self._generation, list(events), before, after)

    def row(self, row_id: str) -> Row | None:
        return self._due.get(row_id)

    def let_go(self) -> None:
        turns = self._state.turns
        for turn_id in self.touched:
            turn = turns[TurnId(turn_id)]
            if turn.terminal:
                self._over[turn.turn_id] = turn.enqueue_sequence
                del turns[turn.turn_id]
        self.touched = set()
        self._due = {}
        self.first = False


class RefoldedMessages:
    """Keeps messages of one page, and of each turn its place in the queue."""

    def __init__(self, session_id: SessionId, generation: Generation) -> None:
        self.made = 0
        self.touched: set[str] = set()
        self.first = True
        self._session_id = session_id
        self._generation = generation
        self._places: dict[TurnId, EnqueueSequence] = {}
        self._folds: dict[TurnId, TurnMessages] = {}
        self._by_id: dict[MessageId, Message] = {}

    def lacks(self, events: Many[AppliedEvent]) -> list[int]:
        places, folds = self._places, self._folds
        named = {event.turn_id for event in events} if places else set()
        return [places[turn_id] for turn_id in named if turn_id in places and turn_id not in folds]

    def take_back(self, rows: Iterable[Any]) -> None:
        for row in rows:
            message = stored_message(row)
            fold = self._folds.get(message.turn_id)
            if fold is None:
                fold = self._folds[message.turn_id] = TurnMessages(message.turn_id, message.enqueue_sequence, [])
            fold.messages[message.message_id] = self._by_id[message.message_id] = message

    def change(self, events: Many[AppliedEvent], hidden: Collection[str]) -> SessionChange:
        places, folds = self._places, self._folds
        before: dict[TurnId, Turn | None] = {}
        shown = [event for event in events if event.event_id not in hidden] if hidden else list(events)
        for event in events:
            turn_id, data = event.turn_id, event.data
            if turn_id is None:
                continue
            if type(data) is TurnQueued:
                places[turn_id] = EnqueueSequence(data.enqueue_sequence)
                before[turn_id] = None
            elif turn_id not in before:
                before[turn_id] = _place_of(turn_id, places[turn_id])
        known = len(self._by_id)
        for event in shown:
            turn_id, data = event.turn_id, event.data
            if turn_id is None or type(data) is UnknownEvent:
                continue
            fold = folds.get(turn_id)
            if fold is None:
                fold = folds[turn_id] = TurnMessages(turn_id, places[turn_id], [])
            fold.apply(event)
        for turn_id in before:
            if (fold := folds.get(turn_id)) is not None:
                self._by_id.update(fold.touched)
                self.touched.update(fold.touched)
                fold.touched = {}
        self.made += len(self._by_id) - known
        after = {turn_id: _place_of(turn_id, places[turn_id]) for turn_id in before}
        return SessionChange(self._session_id, self._generation, shown, before, after)

    def row(self, row_id: str) -> Row | None:
        message = self._by_id.get(MessageId(row_id))
        return None if message is None else message_row(message)

    def let_go(self) -> None:
        self.touched = set()
        self.first = False
        self._folds = {}
        self._by_id = {}


def _place_of(turn_id: TurnId, place: EnqueueSequence) -> Turn:
    """As much of a turn as messages need: which one it is and where."""
    nothing = Sequence(0)
    return Turn(
        turn_id=turn_id,
        enqueue_sequence=place,
        input=b"[]",
        queued_at=Micros(0),
        first_sequence=nothing,
        last_sequence=nothing,
    )
