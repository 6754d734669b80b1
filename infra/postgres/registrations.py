"""Session registrations, in the gateway's own database: who owns a session, what they call it, which token opens it.

The agent service knows none of this, and this database knows nothing of turns. A crash between the two is healed by
repeating: `begin` gives the same registration again, CreateSession and CloseSession are repeatable by id, and a sweeper
goes through `unsettled`.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Many
from typing import Any, Literal

import msgspec

from domain.errors import StoreUnavailable, Unavailable
from domain.ids import Micros, SessionId, is_uuid
from domain.ports import Statement
from infra.postgres.pool import Pool, fetch
from infra.postgres.sql import statements

State = Literal["starting", "active", "failed", "deleted"]


class RegistrationsUnavailable(Unavailable):
    """The gateway's own database; the agent service may be well."""

    code = "registrations_unavailable"
    sentence = "The session registrations cannot be reached."


class Owner(msgspec.Struct, frozen=True):
    """Whose sessions: a user, in a workspace where the token names one. Both at most 255 bytes of UTF-8."""

    user_id: str
    workspace_id: str = ""


class NewRegistration(msgspec.Struct, frozen=True, kw_only=True):
    """What a create request asks for. `fingerprint`: SHA-256 of what it said; `metadata`: JSON text."""

    session_id: SessionId
    owner: Owner
    agent_id: str
    fingerprint: bytes
    external_id: str | None = None
    title: str | None = None
    context_version: str | None = None
    metadata: bytes | None = None


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `token_hash`: SHA-256 of the session token, None until a create request has been answered.
    `token_seconds`: how much longer that is good, by the clock that stamped it (the database's), where one registration
    was asked for by its id."""

    session_id: SessionId
    user_id: str
    workspace_id: str
    external_id: str | None
    agent_id: str
    fingerprint: bytes
    state: State
    token_hash: bytes | None
    token_expires_at: Micros | None
    title: str | None
    starred: bool
    context_version: str | None
    metadata: bytes | None
    created_at: Micros
    changed_at: Micros
    token_seconds: float | None = None

    @property
    def owner(self) -> Owner:
        return Owner(self.user_id, self.workspace_id)


def registration_of(row: Any) -> Registration:
    """The registration in a row with all of its columns."""
    return Registration(**{name: row[name] for name in Registration.__struct_fields__ if name in row})


class PostgresRegistrations:
    """The table `registrations`. Every method is one statement and its own transaction, so concurrent gateways need no
    other agreement; all raise RegistrationsUnavailable when the database cannot be reached."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._sql = statements("registrations")

    @property
    def pool(self) -> Pool:
        """Connections to the gateway's own database."""
        return self._pool

    async def begin(self, new: NewRegistration) -> tuple[Registration, bool]:
        """The registration, `starting`, and True; or the one that has this owner's name already, in any state but
        failed, and False. Of any number of callers exactly one gets True."""
        for _ in range(3):
            rows = await self._fetch(
                self._sql["begin"],
                new.session_id,
                new.owner.user_id,
                new.owner.workspace_id,
                new.external_id,
                new.agent_id,
                new.fingerprint,
                new.title,
                new.context_version,
                new.metadata,
            )
            if rows:
                return registration_of(rows[0]), True
            taken = None if new.external_id is None else await self.named(new.owner, new.external_id)
            if taken is not None:
                return taken, False
        # The name was taken and freed again each time we looked: others fail to create it right now.
        raise RegistrationsUnavailable()

    async def named(self, owner: Owner, name: str) -> Registration | None:
        """The owner's registration of that external id, else of that session id; `starting` and `deleted` ones too."""
        session_id = name if is_uuid(name) else None
        return await self._one("named", owner.user_id, owner.workspace_id, name, session_id)

    async def get(self, session_id: SessionId) -> Registration | None:
        """In any state, whoever owns it."""
        return await self._one("get", session_id)

    async def named_many(self, asked: Many[tuple[Owner, str]]) -> dict[tuple[Owner, str], Registration]:
        """`named` for many at once; those that are not there are left out."""
        users, workspaces = [o.user_id for o, _ in asked], [o.workspace_id for o, _ in asked]
        names = [name for _, name in asked]
        ids = [name if is_uuid(name) else None for name in names]
        rows = await self._fetch(self._sql["named_many"], users, workspaces, names, ids)
        return {asked[row["place"] - 1]: registration_of(row) for row in rows}

    async def get_many(self, session_ids: Many[SessionId]) -> dict[SessionId, Registration]:
        """`get` for many at once."""
        rows = await self._fetch(self._sql["get_many"], list(session_ids))
        return {row["session_id"]: registration_of(row) for row in rows}

    async def activate(
        self, session_id: SessionId, token_hash: bytes | None = None, token_seconds: float = 0.0
    ) -> Registration | None:
        """The session exists in the agent service; None when it was deleted or has failed meanwhile. A hash replaces
        the token there was and is valid for `token_seconds` from now; None keeps it."""
        return await self._one("activate", session_id, token_hash, token_seconds)

    async def fail(self, session_id: SessionId) -> None:
        """The agent service refused the session: nothing was created and the owner's name is free again."""
        await self._fetch(self._sql["fail"], session_id)

    async def page(self, owner: Owner, limit: int, before: SessionId | None) -> list[Registration]:
        """Active sessions of the owner, newest first, from below `before`."""
        rows = await self._fetch(self._sql["page"], owner.user_id, owner.workspace_id, before, limit)
        return [registration_of(row) for row in rows]

    async def ids(self, owner: Owner, limit: int) -> list[SessionId]:
        """Active sessions of the owner, newest first."""
        rows = await self._fetch(self._sql["ids"], owner.user_id, owner.workspace_id, limit)
        return [row["session_id"] for row in rows]

    async def change(self, session_id: SessionId, sent: Mapping[str, Any]) -> Registration | None:
        """Set those of title, starred and context_version that `sent` names; None when the session is not active."""
        fields: list[Any] = []
        for name in ("title", "starred", "context_version"):
            fields += [name in sent, sent.get(name)]
        return await self._one("change", session_id, *fields)

    async def delete(self, session_id: SessionId, *, erase: bool = False) -> bool:
        """True for the one caller that deleted it. The id and the name stay taken for ever; an erase takes title and
        metadata away at once."""
        return bool(await self._fetch(self._sql["delete_and_erase" if erase else "delete"], session_id))

    async def erasing(self, session_id: SessionId) -> bool:
        """Whether its deletion asked for an erase."""
        return bool(await self._fetch(self._sql["erasing"], session_id))

    async def close(self, session_id: SessionId) -> None:
        """The agent service has confirmed the close of a deleted session: the sweeper need not ask again."""
        await self._fetch(self._sql["close"], session_id)

    async def unsettled(self, seconds: float, limit: int) -> list[Registration]:
        """Starting, or deleted but not closed, for longer than that; the oldest first."""
        return [registration_of(row) for row in await self._fetch(self._sql["unsettled"], seconds, limit)]

    async def changed(self, seconds: float, session_ids: Many[SessionId]) -> list[Registration]:
        """Those of these sessions that changed within that time."""
        return [registration_of(row) for row in await self._fetch(self._sql["changed"], seconds, list(session_ids))]

    async def ping(self) -> None:
        """Raises when the database does not answer."""
        await self._fetch(self._sql["ping"])

    async def _one(self, name: str, *args: Any) -> Registration | None:
        rows = await self._fetch(self._sql[name], *args)
        return registration_of(rows[0]) if rows else None

    async def _fetch(self, statement: Statement, *args: Any) -> list[Any]:
        try:
            return await fetch(self._pool, statement, *args)
        except StoreUnavailable as error:
            raise RegistrationsUnavailable() from error
