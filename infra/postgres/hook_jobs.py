"""Tries of background hook jobs. The log decides what is to be done; these rows say who tries it and when again."""

from uuid import UUID

import msgspec

from domain.ids import SessionId, TurnId
from infra.postgres.pool import Pool, execute, fetch
from infra.postgres.sql import statements

_SQL = statements("hooks")


class HookTry(msgspec.Struct, frozen=True, kw_only=True):
    """One try of a job that is ours until its hold ends. `attempts` counts from 1 and names the try."""

    job_id: str
    session_id: SessionId
    turn_id: TurnId
    agent_id: str
    hook: str
    attempts: int


class DueHook(msgspec.Struct, frozen=True):
    """What the work queue is told of a job."""

    job_id: str
    agent_id: str
    hook: str


class PostgresHookJobs:
    """For the worker's role; times are the database's. All methods raise StoreUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def begin(self, job_id: str, hold: float) -> HookTry | None:
        """Try it, for `hold` seconds at a time; None where it is over, unknown, or held by another."""
        try:
            UUID(job_id)
        except ValueError:
            return None
        rows = await fetch(self._pool, _SQL["begin"], job_id, hold)
        return HookTry(job_id=job_id, **rows[0]) if rows else None

    async def hold(self, tried: HookTry, hold: float) -> bool:
        """Keep it; False where it is no longer ours, or is gone with its session."""
        return bool(await fetch(self._pool, _SQL["hold"], tried.job_id, tried.attempts, hold))

    async def let_go(self, tried: HookTry, again_in: float, *, uncounted: bool = False) -> None:
        """Not done: due again in so many seconds. `uncounted`: the try was not the hook's fault."""
        await execute(self._pool, _SQL["let_go"], tried.job_id, tried.attempts, again_in, int(uncounted))

    async def due(self, limit: int, again_in: float) -> list[DueHook]:
        """Jobs of which the work queue seems to know nothing. They count as told, for `again_in` seconds."""
        rows = await fetch(self._pool, _SQL["due"], limit, again_in)
        return [DueHook(row["job_id"], row["agent_id"], row["hook"]) for row in rows]

    async def waiting(self) -> tuple[int, float]:
        """How many are not done, and the age of the oldest in seconds."""
        row = (await fetch(self._pool, _SQL["open"]))[0]
        return row["open"], row["oldest_seconds"]
