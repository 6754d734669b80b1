"""Events of all sessions in commit-safe order."""

import msgspec

from domain.events.envelope import StoredEvent
from domain.ids import Micros
from domain.ports import FeedPosition
from infra.postgres.pool import Pool, fetch
from infra.postgres.rows import event_of
from infra.postgres.sql import statements

_SQL = statements("reads")
_STEP = 1000
_END = FeedPosition(2**64 - 1, 2**63 - 1)


class Horizon(msgspec.Struct, frozen=True):
    """How far the feed lies behind because of open transactions: of all databases of the server, counted and in seconds
    of the oldest one."""

    transactions: int
    seconds: float


class PostgresFeed:
    """Implements `domain.ports.Feed`. Never gains an event behind a reader's back; waits for the oldest open
    transaction of the whole server, other databases' too, so watch `horizon`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def read(self, after: FeedPosition, limit: int) -> list[tuple[FeedPosition, StoredEvent]]:
        """See `Feed.read`. Raises StoreUnavailable."""
        rows = await fetch(self._pool, _SQL["feed"], str(after.transaction_id), after.position, limit)
        return [(FeedPosition(int(row["transaction_id"]), row["position"]), event_of(row)) for row in rows]

    async def place_before(self, at: Micros) -> FeedPosition:
        """A place before every event that was written at that time or later, as far as the writers' clocks agree. Goes
        back from the end step by step, since there is no index by time. Raises StoreUnavailable."""
        place = _END
        while True:
            rows = await fetch(self._pool, _SQL["feed_back"], str(place.transaction_id), place.position, _STEP)
            if not rows:
                return FeedPosition()
            place = FeedPosition(int(rows[0]["transaction_id"]), rows[0]["position"])
            if rows[0]["created_at"] < at:
                return place

    async def horizon(self) -> Horizon:
        """For the alarm on a transaction that holds the feed back."""
        rows = await fetch(self._pool, _SQL["feed_horizon"])
        return Horizon(transactions=rows[0]["transactions"], seconds=rows[0]["seconds"])
