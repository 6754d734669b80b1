"""Ends open streams whose right to read is gone: another session token, another owner.

A message on the session's control subject makes every gateway look at once, and each looks by itself every few seconds,
so that it works without the broker too. What the database says counts, never the message.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import structlog

from domain.clock import Clock
from domain.errors import Unavailable
from domain.ids import SessionId
from infra.postgres.registrations import PostgresRegistrations
from infra.postgres.stream_passes import Grant

log = structlog.get_logger("turnlog.gateway")

_MARGIN_SECONDS = 15.0
"""Longer than a stream takes to be opened after its credential was looked at, and than a statement takes to commit."""

End = Callable[[], None]


class Revocations:
    """`run` it in a task. A stream is watched from when it is open; what changed while it was being opened is seen at
    the next look."""

    def __init__(self, registrations: PostgresRegistrations, clock: Clock, seconds: float) -> None:
        self._registrations = registrations
        self._clock = clock
        self._seconds = seconds
        self._looked = clock.monotonic()
        self._watched: dict[SessionId, dict[object, tuple[Grant, End]]] = {}
        self._wake = asyncio.Event()

    @contextlib.contextmanager
    def watching(self, session_id: SessionId, grant: Grant, end: End) -> Iterator[None]:
        """Calls `end` if that grant does not hold any more, while the block runs."""
        streams = self._watched.setdefault(session_id, {})
        key = object()
        streams[key] = (grant, end)
        try:
            yield
        finally:
            del streams[key]
            if not streams and self._watched.get(session_id) is streams:
                del self._watched[session_id]

    def check(self, session_id: str) -> None:
        """Look soon, if the session has streams here."""
        if session_id in self._watched:
            self._wake.set()

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._seconds):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self.look()
            except Unavailable as error:
                log.warning("revocations_unknown", code=error.code)
                # Woken at once again and again, a database that is away would get no rest.
                await asyncio.sleep(min(self._seconds, 1.0))

    async def look(self) -> int:
        """How many streams were ended. Raises Unavailable."""
        now = self._clock.monotonic()
        ended = 0
        if self._watched:
            since = now - self._looked + _MARGIN_SECONDS
            for registration in await self._registrations.changed(since, list(self._watched)):
                for grant, end in list(self._watched.get(registration.session_id, {}).values()):
                    if not grant.holds(registration):
                        end()
                        ended += 1
        self._looked = now
        if ended:
            log.info("streams_revoked", count=ended)
        return ended
