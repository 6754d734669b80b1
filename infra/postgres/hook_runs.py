"""What became of hooks, by the feed projection `hooks`; for roles that only read."""

from collections.abc import Sequence as Many

import msgspec

from domain.ids import Micros, SessionId
from infra.postgres.pool import Pool, fetch
from infra.postgres.sql import statements

_SQL = statements("hook_runs")


class HookRunRow(msgspec.Struct, frozen=True, kw_only=True):
    """One job. `result` is JSON."""

    job_id: str
    session_id: SessionId
    turn_id: str
    hook: str
    kind: str
    status: str
    result: msgspec.Raw | None
    error: str | None
    attempts: int | None
    scheduled_at: Micros
    finished_at: Micros | None


class PostgresHookRuns:
    """Any number of callers at once. Raises StoreUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def of(
        self, sessions: Many[SessionId], kind: str | None, limit: int, before: tuple[Micros, str] | None = None
    ) -> list[HookRunRow]:
        """Of those sessions, the newest first; `before`: scheduled_at and job_id of the last one of the page before."""
        if not (await fetch(self._pool, _SQL["made"]))[0]["made"]:
            return []
        at, job_id = before or (None, None)
        rows = await fetch(self._pool, _SQL["runs"], list(sessions), kind, limit, at, job_id)
        return [
            HookRunRow(**{**row, "result": None if row["result"] is None else msgspec.Raw(row["result"])})
            for row in rows
        ]
