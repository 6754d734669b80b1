"""Questions to feed projections, for roles that only read."""

from collections.abc import Sequence as Many

import msgspec

from domain.ids import Micros, SessionId
from infra.postgres.feed_slots import SlotState, slot_states
from infra.postgres.pool import Pool, fetch
from infra.postgres.sql import statements

_SQL = statements("search")

Place = tuple[Micros, SessionId, int]
"""Where a page ended: created_at, session, sequence."""


class Found(msgspec.Struct, frozen=True):
    """One text. `sequence` is that of its event."""

    session_id: SessionId
    turn_id: str
    role: str
    sequence: int
    content: str
    created_at: Micros


class PostgresFeedReads:
    """Any number of callers at once. Raises StoreUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def served(self) -> list[SlotState]:
        """Every projection that is served, with its lag."""
        return [state for state in await slot_states(self._pool) if state.slot == "serving"]

    async def find(
        self, sessions: Many[SessionId], terms: Many[str], runs: Many[str], limit: int, before: Place | None
    ) -> list[Found]:
        """Texts of those sessions that have all terms and, somewhere in them, each run; the newest first."""
        if not (await fetch(self._pool, _SQL["made"]))[0]["made"]:
            return []
        at, session_id, sequence = before or (None, None, None)
        rows = await fetch(
            self._pool, _SQL["find"], list(sessions), list(terms), list(runs), limit, at, session_id, sequence
        )
        return [Found(**row) for row in rows]
