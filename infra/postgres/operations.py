"""What an operator watches in the agent database; read by projectors for their metrics."""

import msgspec

from infra.postgres.pool import Pool, fetch
from infra.postgres.sql import statements

_SQL = statements("operations")
_COUNTED = 10_000


class TurnCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Turns that are not over. `stopped`: of the waiting ones, those in queues that a bad end has paused.
    `startable_seconds`: for how long the oldest waits that nothing keeps from starting, 0 where there is none.
    `ownerless`: running, and no worker holds them. `longest_seconds`: age of the oldest leg that runs."""

    waiting: int
    stopped: int
    startable_seconds: float
    running: int
    paused: int
    ownerless: int
    longest_seconds: float


class Behind(msgspec.Struct, frozen=True):
    """How far a reader of the feed lies behind: events, counted up to 10,000, and the age of the oldest in seconds."""

    events: int
    seconds: float


class PostgresOperations:
    """Plain reads. All methods raise StoreUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def turns(self) -> TurnCounts:
        """Of all sessions."""
        return TurnCounts(**(await fetch(self._pool, _SQL["turns"]))[0])

    async def horizon(self) -> tuple[int, int]:
        """The oldest open transaction of the server, and the one after the newest ended; equal: the feed is free."""
        row = (await fetch(self._pool, _SQL["horizon"]))[0]
        return int(row["oldest"]), int(row["next"])

    async def behind(self, name: str) -> Behind:
        """A checkpoint of `PostgresCheckpoints`."""
        row = (await fetch(self._pool, _SQL["lag"], name, _COUNTED))[0]
        return Behind(row["events"], row["seconds"])
