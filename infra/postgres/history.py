"""What the history for the model is made of: a turn's own events, private parts included, and its line of parents."""

from collections.abc import Sequence as Many

from domain.events.envelope import StoredEvent
from domain.ids import SessionId, TurnId
from domain.turn import Turn
from domain.turn_row import from_row
from infra.postgres.pool import Pool, fetch
from infra.postgres.rows import event_of
from infra.postgres.sql import statements


class PostgresHistory:
    """For workers and the agent service only: what it returns holds private parts."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def turn_events(self, session_id: SessionId, turn_id: TurnId) -> list[StoredEvent]:
        """All events of one turn in sequence; empty for an unknown turn. Raises StoreUnavailable."""
        return [
            event_of(row) for row in await fetch(self._pool, statements("reads")["turn_events"], session_id, turn_id)
        ]

    async def turn_chain(self, session_id: SessionId, turn_id: TurnId) -> list[Turn]:
        """The turn itself, its parent, that one's parent … up to the first; empty for an unknown turn. Never a scan by
        sequence: after a fork or regenerate the other branch is not in it. Raises StoreUnavailable."""
        rows = await fetch(self._pool, statements("read_models")["turn_chain"], session_id, turn_id)
        return [from_row(row) for row in rows]

    async def turn_states(self, session_id: SessionId, turn_ids: Many[TurnId]) -> list[StoredEvent]:
        """Of those turns only what a model's past is made of: inputs and checkpoints, in sequence. Raises
        StoreUnavailable."""
        rows = await fetch(self._pool, statements("reads")["turn_states"], session_id, list(turn_ids))
        return [event_of(row) for row in rows]
