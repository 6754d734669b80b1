"""Workers: one row per process start, a lease each; claims refer to it."""

from collections.abc import Sequence as Many

import msgspec

from domain.ids import Fence, SessionId, TurnId, WorkerId
from infra.postgres.pool import Pool, execute, fetch
from infra.postgres.sql import statements

_SQL = statements("workers")


class Held(msgspec.Struct, frozen=True):
    """A claim as its holder sees it; `silent_seconds`: for how long the runtime has given no frame, on the holder's
    monotonic clock."""

    session_id: SessionId
    turn_id: TurnId
    fence: Fence
    silent_seconds: float


class Heartbeat(msgspec.Struct, frozen=True):
    """`expires_in`: seconds of lease from the moment the request was sent, so a slow answer shortens nothing unseen.
    `lost`: turns that another has taken over; only those stop. `interrupted`: turns with a stored intent."""

    expires_in: float
    lost: set[TurnId]
    interrupted: set[TurnId]


class Startable(msgspec.Struct, frozen=True):
    """A session in which something may start. `orphan`: its running turn, where that one's worker is gone
    or has handed it back."""

    session_id: SessionId
    agent_id: str
    orphan: TurnId | None = None


class PostgresWorkers:
    """Leases run on the database's clock. All methods raise StoreUnavailable."""

    def __init__(
        self, pool: Pool, lease_seconds: float = 15.0, *, turn_seconds: float = 3600.0, silent_seconds: float = 600.0
    ) -> None:
        """`turn_seconds`, `silent_seconds`: as in `domain.decisions.Limits`: what is found is what is judged."""
        self._pool = pool
        self._lease = lease_seconds
        self._turn_seconds = turn_seconds
        self._silent_seconds = silent_seconds

    async def heartbeat(self, worker_id: WorkerId, held: Many[Held]) -> Heartbeat:
        """Begin the lease or renew it, an expired or collected one too, and learn what was lost or shall stop."""
        rows = await fetch(
            self._pool,
            _SQL["heartbeat"],
            worker_id,
            self._lease,
            [claim.session_id for claim in held],
            [claim.turn_id for claim in held],
            [claim.fence for claim in held],
            [claim.silent_seconds for claim in held],
        )
        return Heartbeat(
            expires_in=self._lease,
            lost={row["turn_id"] for row in rows if row["lost"]},
            interrupted={row["turn_id"] for row in rows if row["interrupted"] and not row["lost"]},
        )

    async def claimable(
        self, limit: int, *, agent_ids: Many[str] | None = None, take_over: bool = True
    ) -> list[Startable]:
        """Sessions in which `claim_turn` would find something, oldest first: open queue and nothing active, paused and
        continued or expired, handed back, out of time, or (with `take_over`) running without a live claim. Only
        sessions of `agent_ids` where given. A plain read that locks nothing; it may be stale at once."""
        agents = None if agent_ids is None else list(agent_ids)
        rows = await fetch(
            self._pool, _SQL["claimable"], limit, agents, take_over, self._turn_seconds, self._silent_seconds
        )
        return [Startable(row["session_id"], row["agent_id"], row["orphan"]) for row in rows]

    async def unregister(self, worker_id: WorkerId) -> None:
        """End the lease now."""
        await execute(self._pool, _SQL["unregister"], worker_id)

    async def collect(self, dead_for: float) -> None:
        """Remove rows that expired more than so many seconds ago and hold nothing."""
        await execute(self._pool, _SQL["collect"], dead_for)
