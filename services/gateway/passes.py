"""How a browser opens an events stream: `EventSource` sends no header, and a token in a URL is read by others.

A ticket stands in the URL and opens a stream once, for some seconds. What reconnects is a cookie that only that stream
gets and no script reads; it is good as long as what the ticket was asked for with.
"""

import asyncio

import msgspec

from domain.ids import SessionId
from infra.postgres.registrations import RegistrationsUnavailable
from infra.postgres.stream_passes import Grant, PostgresStreamPasses
from services.gateway import tokens

COOKIE = "turnlog_stream"

_MOST = 128

# Less than what a stream has for its whole attach (TURNLOG_GATEWAY_ATTACH_SECONDS).
_SPEND_SECONDS = 3.0


class TicketUnclear(RegistrationsUnavailable):
    """Nobody knows whether the ticket is spent. `cookie` is good if it is; if it is not, the ticket still is. No field,
    since fields are shown to people."""

    def __init__(self, cookie: str) -> None:
        super().__init__()
        self.cookie = cookie


class Opened(msgspec.Struct, frozen=True):
    """What a ticket or cookie stands for. `cookie`: a fresh one, where a ticket was spent."""

    session_id: SessionId
    grant: Grant
    cookie: str | None = None


class StreamPasses:
    """Tickets and cookies. Seconds: `ticket_seconds` to use a ticket, `cookie_seconds` for a cookie whose grant has no
    end. All raise RegistrationsUnavailable."""

    def __init__(self, passes: PostgresStreamPasses, ticket_seconds: float, cookie_seconds: float) -> None:
        self._passes = passes
        self._cookie_seconds = cookie_seconds
        self.ticket_seconds = ticket_seconds

    async def ticket(self, session_id: SessionId, grant: Grant) -> str:
        """A new one."""
        ticket = tokens.mint_ticket()
        await self._passes.issue(session_id, tokens.digest(ticket), grant, self.ticket_seconds)
        return ticket

    async def open(self, ticket: str | None, cookie: str | None) -> Opened | None:
        """A ticket is spent by this; one that is spent already leaves it to the cookie. Raises TicketUnclear."""
        if ticket is not None and len(ticket) <= _MOST:
            fresh = tokens.mint_cookie()
            try:
                async with asyncio.timeout(_SPEND_SECONDS):
                    spent = await self._passes.spend(tokens.digest(ticket), tokens.digest(fresh), self._cookie_seconds)
            except (RegistrationsUnavailable, TimeoutError) as error:
                raise TicketUnclear(fresh) from error
            if spent is not None:
                return Opened(*spent, cookie=fresh)
        if cookie is not None and len(cookie) <= _MOST:
            found = await self._passes.find(tokens.digest(cookie))
            if found is not None:
                return Opened(*found)
        return None


def set_cookie(value: str, path: str, seconds: int, *, secure: bool) -> str:
    """The header's value. `path`: of the stream, percent-encoded; where a cookie cannot name it, of all sessions."""
    if not path.isascii() or any(character in path for character in ";, \t\r\n"):
        path = "/v1/sessions/"
    ends = "; Secure" if secure else ""
    return f"{COOKIE}={value}; Path={path}; Max-Age={max(seconds, 0)}; HttpOnly; SameSite=Strict{ends}"
