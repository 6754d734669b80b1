"""Tickets and cookies that open events streams, in the gateways' own database: only digests are stored."""

from typing import Any

import msgspec

from domain.errors import StoreUnavailable
from domain.ids import SessionId
from domain.ports import Statement
from infra.postgres.pool import Pool, fetch
from infra.postgres.registrations import Owner, Registration, RegistrationsUnavailable
from infra.postgres.sql import statements


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """By what right somebody reads a session: as its owner, or by the session token with that hash. `seconds`: until
    that ends, None for never; counted from when it was looked at, so that no two clocks are ever compared."""

    owner: Owner | None = None
    token_hash: bytes | None = None
    seconds: float | None = None

    def holds(self, registration: Registration) -> bool:
        """Whether it is still right for that registration, apart from the time."""
        if registration.state not in ("active", "deleted"):
            return False
        return registration.owner == self.owner if self.owner else registration.token_hash == self.token_hash


class PostgresStreamPasses:
    """Every method is one statement. All raise RegistrationsUnavailable when the database cannot be reached."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._sql = statements("stream_passes")

    async def issue(self, session_id: SessionId, ticket: bytes, grant: Grant, seconds: float) -> None:
        """A ticket with that digest, good for so long."""
        user, workspace = (None, None) if grant.owner is None else (grant.owner.user_id, grant.owner.workspace_id)
        await self._fetch("issue", ticket, session_id, user, workspace, grant.token_hash, grant.seconds, seconds)

    async def spend(self, ticket: bytes, cookie: bytes, seconds: float) -> tuple[SessionId, Grant] | None:
        """Puts the cookie in the ticket's place, for so long and no longer than the grant, which ends with it. None
        where there is no such ticket (any more); of several callers one gets it."""
        return _granted(await self._fetch("spend", ticket, cookie, seconds))

    async def find(self, cookie: bytes) -> tuple[SessionId, Grant] | None:
        """What a cookie stands for."""
        return _granted(await self._fetch("find", cookie))

    async def _fetch(self, name: str, *args: Any) -> list[Any]:
        statement: Statement = self._sql[name]
        try:
            return await fetch(self._pool, statement, *args)
        except StoreUnavailable as error:
            raise RegistrationsUnavailable() from error


def _granted(rows: list[Any]) -> tuple[SessionId, Grant] | None:
    if not rows:
        return None
    row = rows[0]
    owner = None if row["user_id"] is None else Owner(row["user_id"], row["workspace_id"])
    return row["session_id"], Grant(owner=owner, token_hash=row["token_hash"], seconds=row["seconds"])
