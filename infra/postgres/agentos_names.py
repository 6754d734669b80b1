"""Where AgentOS callers' runs are, and pages of their sessions, in the gateway's own database."""

from collections.abc import Sequence as Many
from typing import Any

import msgspec

from domain.errors import StoreUnavailable
from domain.ids import SessionId
from domain.ports import Statement
from infra.postgres.pool import Pool, fetch
from infra.postgres.registrations import Owner, Registration, RegistrationsUnavailable, registration_of
from infra.postgres.sql import statements


class SessionPage(msgspec.Struct, frozen=True):
    """`total`: how many there are in all, also behind the last page."""

    items: list[Registration]
    total: int


class PostgresAgentOSNames:
    """The table `agentos_runs`. Every method is one or two statements without a transaction, so concurrent gateways
    need no other agreement; all raise RegistrationsUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._sql = statements("agentos")

    async def take(self, owner: Owner, run_id: str, session_id: SessionId) -> SessionId:
        """The session that the owner's run of that name is in: this one, unless the name was taken before."""
        rows = await self._fetch(self._sql["take"], owner.user_id, owner.workspace_id, run_id, session_id)
        if rows:
            return session_id
        return await self.find(owner, run_id) or session_id

    async def find(self, owner: Owner, run_id: str) -> SessionId | None:
        """Where the owner's run of that name is."""
        rows = await self._fetch(self._sql["find"], owner.user_id, owner.workspace_id, run_id)
        return SessionId(str(rows[0]["session_id"])) if rows else None

    async def sessions(
        self,
        owner: Owner,
        *,
        agents: Many[str] | None,
        title: str | None,
        user: str | None,
        ascending: bool,
        limit: int,
        offset: int,
    ) -> SessionPage:
        """Active sessions of the owner by age: of those agents, with that in their title, begun with that user_id."""
        wanted = None if agents is None else list(agents)
        which = (owner.user_id, owner.workspace_id, wanted, title, user, ascending)
        rows = await self._fetch(self._sql["sessions"], *which, limit, offset)
        counted = rows or (await self._fetch(self._sql["sessions"], *which, 1, 0) if offset else [])
        return SessionPage([registration_of(row) for row in rows], counted[0]["total"] if counted else 0)

    async def _fetch(self, statement: Statement, *args: Any) -> list[Any]:
        try:
            return await fetch(self._pool, statement, *args)
        except StoreUnavailable as error:
            raise RegistrationsUnavailable() from error
