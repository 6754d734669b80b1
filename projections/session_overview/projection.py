"""The `session_overview` read model: one row a session, for lists of conversations."""

from collections.abc import Sequence as Many

import msgspec

from domain.events import session, turn
from domain.ids import SessionId
from domain.parts import input_text
from domain.ports import FeedEvent, Transaction
from projections.base import definition, queries

_SQL = queries("projections.session_overview")
_encode = msgspec.json.Encoder().encode

_INPUT_CHARACTERS = 200
_COUNTED: dict[str, str] = {
    "turn.queued": "queued",
    "turn.completed": "completed",
    "turn.failed": "failed",
    "turn.interrupted": "interrupted",
    "turn.cancelled": "cancelled",
}


class _Change(msgspec.Struct, kw_only=True):
    """What a page of events says of one session."""

    session_id: str
    first_at: int
    last_at: int
    last_sequence: int
    agent_id: str | None = None
    component: str | None = None
    closed_at: int | None = None
    queued: int = 0
    completed: int = 0
    failed: int = 0
    interrupted: int = 0
    cancelled: int = 0
    last_turn_id: str | None = None
    last_input: str | None = None


class SessionOverview:
    """Implements `domain.ports.FeedProjection`."""

    name = "session_overview"
    version = 1
    tables = ("session_overview",)
    definition = definition("projections.session_overview")

    async def apply(self, events: Many[FeedEvent], tx: Transaction) -> None:
        """One statement a page."""
        changes: dict[str, _Change] = {}
        for event in events:
            at = event.created_at
            change = changes.get(event.session_id)
            if change is None:
                change = _Change(session_id=event.session_id, first_at=at, last_at=at, last_sequence=0)
                changes[event.session_id] = change
            change.last_at = max(change.last_at, at)
            change.last_sequence = max(change.last_sequence, event.sequence)
            _note(change, event)
        if changes:
            await tx.execute(_SQL["save"], _encode(list(changes.values())))

    async def erase(self, session_id: SessionId, tx: Transaction) -> None:
        """The beginning of the last input goes."""
        await tx.execute(_SQL["erase"], session_id)


def _note(change: _Change, event: FeedEvent) -> None:
    data = event.data
    counted = _COUNTED.get(event.type)
    if counted is not None:
        setattr(change, counted, getattr(change, counted) + 1)
    if isinstance(data, session.SessionCreated):
        change.agent_id, change.component = data.agent_id, data.component
    elif isinstance(data, session.SessionClosed):
        change.closed_at = event.created_at
    elif isinstance(data, turn.TurnQueued):
        change.last_turn_id = event.turn_id
        change.last_input = input_text(data.input)[:_INPUT_CHARACTERS]
