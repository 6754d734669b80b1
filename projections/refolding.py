"""Read models of sessions from event zero: what a rebuild writes, and a second fold that it is compared with."""

from collections.abc import Sequence as Many

from domain.events.registry import UnknownEvent
from domain.events.turn import TurnQueued
from domain.ids import EnqueueSequence, Generation, Micros, SessionId, TurnId
from domain.message import TurnMessages
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

    def rows(self) -> dict[str, Row]:
        """Id -> row of the turns model, as of the last event."""
        return {turn.turn_id: turn_row(turn) for turn in self._state.turns.values()}


class FreshRows:
    """The second fold: all in memory, no database; rows by their id."""

    def __init__(self, name: str, session_id: SessionId) -> None:
        self._turns = Refold(name, session_id, Generation(0)) if name == "turns" else None
        self._messages: dict[TurnId, TurnMessages] = {}

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
            if turn_id in self._messages:
                self._messages[turn_id].apply(event)

    def rows(self) -> dict[str, Row]:
        """Id -> row."""
        if self._turns is not None:
            return self._turns.rows()
        folds = self._messages.values()
        return {m.message_id: message_row(m) for fold in folds for m in fold.messages.values()}
