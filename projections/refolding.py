"""Read models of sessions from event zero: what a rebuild writes, and a second fold that it is compared with."""

from collections.abc import Sequence as Many

from domain.events.registry import UnknownEvent
from domain.events.turn import TurnQueued
from domain.ids import EnqueueSequence, Generation, MessageId, Micros, SessionId, TurnId
from domain.message import Message, TurnMessages
from domain.ports import AppliedEvent, SessionChange
from domain.session import SessionState, evolve
from domain.turn import Turn, new_turn
from projections.audit.models import MESSAGE_COLUMNS, TURN_COLUMNS, Row, message_row, turn_row

COLUMNS: dict[str, tuple[str, ...]] = {"turns": TURN_COLUMNS, "messages": MESSAGE_COLUMNS}
"""Read model -> its columns but for session and generation; the first one is the row's id."""

EVENT_TYPES: dict[str, tuple[str, ...] | None] = {
    "turns": None,
    "messages": ("turn.queued", "item.completed", "item.superseded", "turn.superseded"),
}
"""Read model -> the events it is made of (None: all)."""


class Refold:
    """One session, page by page from its first event. Raises IllegalTransition on a log that cannot be."""

    def __init__(self, name: str, session_id: SessionId, generation: Generation) -> None:
        self._whole = EVENT_TYPES[name] is None
        self._name = name
        self._session_id = session_id
        self._generation = generation
        self._state = SessionState(session_id=session_id, turns={})

    def change(self, events: Many[AppliedEvent]) -> SessionChange:
        """What these events, which follow those before, are to a projection."""
        turns = self._state.turns
        before: dict[TurnId, Turn | None] = {}
        for event in events:
            turn_id = event.turn_id
            if turn_id is not None and turn_id not in before:
                before[turn_id] = turns.get(turn_id)
            self._apply(event)
        after = {turn_id: turns[turn_id] for turn_id in before}
        return SessionChange(self._session_id, self._generation, list(events), before, after)

    def fold(self, events: Many[AppliedEvent]) -> None:
        """The same for nobody but `rows`."""
        for event in events:
            self._apply(event)

    def _apply(self, event: AppliedEvent) -> None:
        if self._whole:
            evolve(self._state, event.data, event.turn_id, event.sequence, Micros(event.created_at))
        elif event.turn_id is not None and isinstance(event.data, TurnQueued):
            self._state.turns[event.turn_id] = new_turn(
                event.turn_id, event.data, event.sequence, Micros(event.created_at)
            )

    def places(self) -> dict[str, int]:
        """Id of each row of the turns model -> the last event that it shows."""
        return {turn.turn_id: turn.last_sequence for turn in self._state.turns.values()}

    def row(self, row_id: str) -> Row | None:
        """The row of that id, as of the last event."""
        turn = self._state.turns.get(TurnId(row_id))
        return None if turn is None else turn_row(turn)


class FreshRows:
    """The second fold: all in memory, no database. Rows are made when they are asked for, since all at once would be
    the session's texts once more."""

    def __init__(self, name: str, session_id: SessionId) -> None:
        self._turns = Refold(name, session_id, Generation(0)) if name == "turns" else None
        self._messages: dict[TurnId, TurnMessages] = {}
        self._by_id: dict[MessageId, Message] = {}

    def apply(self, events: Many[AppliedEvent]) -> None:
        """Events that follow those before."""
        if self._turns is not None:
            self._turns.fold(events)
            return
        for event in events:
            turn_id = event.turn_id
            if turn_id is None or isinstance(event.data, UnknownEvent):
                continue
            if isinstance(event.data, TurnQueued):
                place = EnqueueSequence(event.data.enqueue_sequence)
                self._messages[turn_id] = TurnMessages(turn_id, place, [])
            fold = self._messages.get(turn_id)
            if fold is not None:
                fold.touched = {}
                fold.apply(event)
                self._by_id.update(fold.touched)

    def places(self) -> dict[str, int]:
        """Id of each row -> the last event that it shows."""
        if self._turns is not None:
            return self._turns.places()
        return {str(message_id): message.last_sequence for message_id, message in self._by_id.items()}

    def row(self, row_id: str) -> Row | None:
        """The row of that id."""
        if self._turns is not None:
            return self._turns.row(row_id)
        message = self._by_id.get(MessageId(row_id))
        return None if message is None else message_row(message)
