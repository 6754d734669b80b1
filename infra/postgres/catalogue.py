"""Which agents can be executed: written by workers as they start, listed by the agent service."""

from collections.abc import Sequence as Many
from typing import Any, Literal

import msgspec

from infra.postgres.pool import Pool, execute, fetch
from infra.postgres.sql import statements

_SQL = statements("workers")

_DETAILS_BYTES = 64 * 1024


class AgentEntry(msgspec.Struct, frozen=True):
    """One agent as clients see it."""

    agent_id: str
    name: str
    component: Literal["agent", "team", "workflow"] = "agent"
    details: dict[str, Any] | None = None
    """Public facts: model, tools, members, steps, mode; at most 64 KiB of JSON."""


class PostgresCatalogue:
    """Agents stay listed when their workers are gone: their sessions wait. All methods raise StoreUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def announce(self, agents: Many[AgentEntry]) -> None:
        """Say what a worker can execute; the newest announcement of an id wins."""
        ordered = sorted(agents, key=lambda agent: agent.agent_id)
        await execute(
            self._pool,
            _SQL["announce"],
            [agent.agent_id for agent in ordered],
            [agent.name for agent in ordered],
            [agent.component for agent in ordered],
            [_kept(agent.details) for agent in ordered],
        )

    async def agents(self) -> list[AgentEntry]:
        """All that were ever announced, the newest announcement first: what nobody serves any more comes last."""
        rows = await fetch(self._pool, _SQL["agents"])
        return [_entry(row) for row in rows]


def _entry(row: Any) -> AgentEntry:
    details = None if row["details"] is None else msgspec.json.decode(row["details"])
    return AgentEntry(row["agent_id"], row["name"], row["component"], details)


def _kept(details: dict[str, Any] | None) -> str | None:
    """Its JSON; too much of it is none at all."""
    if details is None:
        return None
    made = msgspec.json.encode(details)
    return made.decode() if len(made) <= _DETAILS_BYTES else None
