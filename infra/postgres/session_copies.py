"""Which sessions begin as copies of others; in the gateway's own database."""

from typing import Any

import msgspec

from domain.errors import StoreUnavailable
from domain.ids import Sequence, SessionId
from infra.postgres.pool import Pool, fetch
from infra.postgres.registrations import RegistrationsUnavailable
from infra.postgres.sql import statements

_SQL = statements("session_copies")


class SessionCopy(msgspec.Struct, frozen=True):
    """What is copied: what had ended at `upto`."""

    source_session_id: SessionId
    upto: Sequence


class PostgresSessionCopies:
    """Both methods raise RegistrationsUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def note(self, session_id: SessionId, made_of: SessionCopy) -> None:
        """Before the session is registered."""
        await self._fetch("note", session_id, made_of.source_session_id, made_of.upto)

    async def find(self, session_id: SessionId) -> SessionCopy | None:
        """None for a session that begins empty."""
        rows = await self._fetch("find", session_id)
        return SessionCopy(rows[0]["source_session_id"], rows[0]["upto"]) if rows else None

    async def _fetch(self, name: str, *args: object) -> list[Any]:
        try:
            return await fetch(self._pool, _SQL[name], *args)
        except StoreUnavailable as error:
            raise RegistrationsUnavailable() from error
