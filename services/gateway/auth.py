"""Who asks, and which sessions are theirs.

A credential is whatever a request shows: a user's JWT, a session token, and on the stream a ticket or its cookie.
Each finds registrations in its own way; somebody else's session and one that does not exist are never told apart.
"""

from typing import Any, Protocol

import msgspec
import structlog
from litestar.connection import ASGIConnection

from domain.clock import Clock
from domain.errors import SessionNotFound
from domain.ids import SessionId
from infra.postgres.registrations import Owner, Registration
from infra.postgres.stream_passes import Grant
from services.gateway import tokens
from services.gateway.names import external_id_fault
from services.gateway.passes import COOKIE, StreamPasses
from services.gateway.refusals import Unauthenticated, UserNeeded
from services.gateway.user_tokens import UserTokens

Connection = ASGIConnection[Any, Any, Any, Any]

LOCAL_USER = Owner("local")
"""Everybody, where authentication is off."""

_MAX_CREDENTIAL = 8192


class Access(msgspec.Struct, frozen=True):
    """A registration that the sender of a request may use, and by what right. `cookie`: what the sender is to show
    from now on."""

    registration: Registration
    grant: Grant
    cookie: str | None = None


class Registrations(Protocol):
    """Where credentials look."""

    async def named(self, owner: Owner, name: str) -> Registration | None: ...

    async def get(self, session_id: SessionId) -> Registration | None: ...


class Credential(Protocol):
    """What a request shows of its sender."""

    def owner(self) -> Owner:
        """The user, for what concerns more than one session. Raises UserNeeded."""
        ...

    async def known(self) -> None:
        """Raises Unauthenticated where this is nobody's, whatever it is shown for."""
        ...

    async def find(self, name: str) -> Access | None:
        """What this sender calls so, in any state. Raises Unauthenticated."""
        ...


class UserCredential(msgspec.Struct, frozen=True):
    """A user: all of their sessions, by external id first, then by session id."""

    user: Owner
    registrations: Registrations
    seconds: float | None = None

    def owner(self) -> Owner:
        return self.user

    async def known(self) -> None:
        return

    async def find(self, name: str) -> Access | None:
        found = await self.registrations.named(self.user, name)
        return None if found is None else Access(found, Grant(owner=self.user, seconds=self.seconds))


class SessionCredential(msgspec.Struct, frozen=True):
    """A session token: one session, by either of its names."""

    token: str
    registrations: Registrations

    def owner(self) -> Owner:
        raise UserNeeded()

    async def known(self) -> None:
        await self._opened()

    async def find(self, name: str) -> Access | None:
        found = await self._opened()
        grant = Grant(token_hash=found.token_hash, seconds=found.token_seconds)
        return Access(found, grant) if name in (found.external_id, found.session_id) else None

    async def _opened(self) -> Registration:
        session_id = tokens.session_of(self.token)
        found = None if session_id is None else await self.registrations.get(session_id)
        if found is None or not tokens.opens(self.token, found.token_hash):
            raise Unauthenticated()
        # The database stamped it, so it goes by that clock, whatever this host's says.
        if found.token_seconds is None or found.token_seconds <= 0:
            raise Unauthenticated()
        return found


class PassCredential(msgspec.Struct, frozen=True):
    """What a browser shows for an events stream: a ticket, which opens it once, else the cookie it got for one."""

    ticket: str | None
    cookie: str | None
    passes: StreamPasses
    registrations: Registrations

    def owner(self) -> Owner:
        raise UserNeeded()

    async def known(self) -> None:
        raise Unauthenticated()

    async def find(self, name: str) -> Access | None:
        opened = await self.passes.open(self.ticket, self.cookie)
        if opened is None:
            raise Unauthenticated()
        found = await self.registrations.get(opened.session_id)
        if found is None or not opened.grant.holds(found):
            raise Unauthenticated()
        return Access(found, opened.grant, opened.cookie) if name in (found.external_id, found.session_id) else None


class Authenticator:
    """Turns requests into credentials and session names into registrations. `users` None: authentication is off."""

    def __init__(
        self,
        registrations: Registrations,
        users: UserTokens | None,
        clock: Clock,
        passes: StreamPasses,
        for_streams: Registrations | None = None,
    ) -> None:
        """`for_streams`: where streams look, many of which are opened at once."""
        self._registrations = registrations
        self._for_streams = for_streams or registrations
        self._passes = passes
        self._users = users
        self._clock = clock

    @property
    def off(self) -> bool:
        return self._users is None

    def credential(self, request: Connection) -> Credential:
        """Raises Unauthenticated."""
        return self._shown(request, self._registrations)

    def _shown(self, request: Connection, registrations: Registrations) -> Credential:
        if self._users is None:
            return UserCredential(LOCAL_USER, registrations)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > _MAX_CREDENTIAL or not token.isascii():
            raise Unauthenticated()
        if token.startswith(tokens.PREFIX):
            if tokens.session_of(token) is None:
                raise Unauthenticated()
            return SessionCredential(token, registrations)
        owner, expires_at = self._users.read(token)
        return UserCredential(owner, registrations, (expires_at - self._clock.now()) / 1_000_000)

    async def known(self, request: Connection) -> None:
        """That somebody we know asks. Raises Unauthenticated."""
        await self.credential(request).known()

    def owner(self, request: Connection) -> Owner:
        """The user who asks. Raises Unauthenticated, UserNeeded."""
        return self.credential(request).owner()

    async def session(self, request: Connection, name: str) -> Registration:
        """The sender's active session of that name. Raises Unauthenticated, SessionNotFound."""
        return (await self.access(request, name)).registration

    async def access(self, request: Connection, name: str) -> Access:
        """The same, and by what right."""
        access = await self._find(self.credential(request), name)
        if access.registration.state != "active":
            raise SessionNotFound()
        return access

    async def stream(self, request: Connection, name: str, ticket: str | None) -> Access:
        """The same for the events stream, which a ticket or its cookie opens too. It also gives the rest of a deleted
        session, and ends when the credential does."""
        access = await self._find(self._for_stream(request, ticket), name)
        if access.registration.state not in ("active", "deleted"):
            raise SessionNotFound()
        return access

    def _for_stream(self, request: Connection, ticket: str | None) -> Credential:
        cookie = request.cookies.get(COOKIE)
        if "authorization" in request.headers or (ticket is None and (cookie is None or self.off)):
            return self._shown(request, self._for_streams)
        return PassCredential(ticket, cookie, self._passes, self._for_streams)

    async def _find(self, credential: Credential, name: str) -> Access:
        # What can be no name is asked of no database: text with U+0000 would be an error there.
        found = None if external_id_fault(name) is not None else await credential.find(name)
        if found is None:
            raise SessionNotFound()
        # What is logged of this request from here on says which session it was about.
        structlog.contextvars.bind_contextvars(session=found.registration.session_id)
        return found
