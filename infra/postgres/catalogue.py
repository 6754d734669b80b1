"""Which agents can be executed: written by workers as they start, listed by the agent service."""

from collections.abc import Sequence as Many
from typing import Literal

import msgspec

from infra.postgres.pool import Pool, execute, fetch
from infra.postgres.sql import statements

_SQL = statements("workers")


class AgentEntry(msgspec.Struct, frozen=True):
    """One agent as clients see it."""

    agent_id: str
    name: str
    component: Literal["agent", "team", "workflow"] = "agent"


class PostgresCatalogue:
    """Agents stay listed when their workers are gone: their sessions wait. All methods raise StoreUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def announce(self, worker_id: str, agents: Many[AgentEntry]) -> None:
        """Say what this worker can execute; the newest announcement of an id wins. `worker_id` is for the caller's log
        line; the table names agents, not processes."""
        ordered = sorted(agents, key=lambda agent: agent.agent_id)
        await execute(
            self._pool,
            _SQL["announce"],
            [agent.agent_id for agent in ordered],
            [agent.name for agent in ordered],
            [agent.component for agent in ordered],
        )

    async def agents(self) -> list[AgentEntry]:
        """All that were ever announced, by id."""
        rows = await fetch(self._pool, _SQL["agents"])
        return [AgentEntry(row["agent_id"], row["name"], row["component"]) for row in rows]
