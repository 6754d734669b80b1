"""The relay: what was committed reaches the stream EVENTS, also when its publisher died between commit and publish.

It reads the feed beside EVENTS and publishes again every committed event that EVENTS still lacks some seconds after its
commit. An EVENTS that is younger than what it keeps has lost something, or never had it: then the relay goes back that
far, once. It invents nothing: an event that is published twice has one message id, and readers converge by
sequence. What the broker keeps of a session that was erased is removed here, too.

Promise to a durable consumer of EVENTS that is never further behind than EVENTS keeps (10 minutes, 256 MiB): each
committed event at least once, whoever died and whatever the broker lost. Order holds within a session only by sequence;
a jump that stays tells a consumer that was away for longer to read the rest from the log.
"""

import asyncio
from itertools import takewhile
from typing import Protocol

import structlog

from domain.clock import Clock
from domain.errors import StoreUnavailable
from domain.events.envelope import StoredEvent, envelope_of
from domain.events.session import SessionErased
from domain.ids import Micros, SessionId
from domain.ports import Feed, FeedPosition, Publication

_log = structlog.get_logger(__name__)

NAME = "relay"
_START = FeedPosition()
_OUTAGE_SECONDS = 1.0


class Past(Feed, Protocol):
    """The feed, and a way back in it."""

    async def place_before(self, at: Micros) -> FeedPosition:
        """A place before every event that was written at that time or later."""
        ...


class Checkpoints(Protocol):
    """Where the place is kept."""

    async def load(self, name: str) -> FeedPosition | None: ...

    async def begin(self, name: str, at: FeedPosition) -> bool: ...

    async def advance(self, name: str, before: FeedPosition, after: FeedPosition) -> bool: ...


class Stored(Protocol):
    """What EVENTS holds."""

    @property
    def current(self) -> bool: ...

    @property
    def made(self) -> float | None: ...

    def take(self, message_id: str) -> bool: ...


class Undelivered(Exception):
    """The broker went away before it had everything: the same events are due again."""


class Publisher(Protocol):
    """Publishes; returns once everything has reached the broker, or raises Undelivered."""

    async def publish(self, publications: list[Publication]) -> None: ...

    async def purge(self, session_id: SessionId) -> None:
        """Remove what the broker keeps of a session."""
        ...


class Relay:
    """One loop. Several projectors may run it: the place is kept by compare-and-set, so a slower one looks twice."""

    def __init__(
        self,
        feed: Past,
        checkpoints: Checkpoints,
        stored: Stored,
        publisher: Publisher,
        clock: Clock,
        *,
        patience: float,
        oldest: float,
        poll: float,
        batch: int,
    ) -> None:
        """`patience`: seconds after its commit within which an event's own publisher may still do it. `oldest`: what is
        older in seconds EVENTS would not keep, so it is passed over. `poll`: seconds between looks. `batch`: events."""
        self._feed = feed
        self._checkpoints = checkpoints
        self._stored = stored
        self._publisher = publisher
        self._clock = clock
        self._patience = int(patience * 1_000_000)
        self._oldest = int(oldest * 1_000_000)
        self._poll = poll
        self._batch = batch
        self._kept = _START
        self._at = _START
        self._made: float | None = None
        self.republished = 0

    async def run(self) -> None:
        """Until cancelled. A database or broker that is away is waited for."""
        began = False
        while True:
            try:
                if not began:
                    await self._begin()
                    began = True
                more = self._stored.current and await self._step()
            except (StoreUnavailable, Undelivered):
                await asyncio.sleep(_OUTAGE_SECONDS)
                continue
            if not more:
                await asyncio.sleep(self._poll)

    async def _begin(self) -> None:
        kept = await self._checkpoints.load(NAME)
        if kept is None:
            await self._checkpoints.begin(NAME, _START)
            kept = await self._checkpoints.load(NAME) or _START
        self._kept = self._at = kept

    async def _step(self) -> bool:
        """One page; whether another one may follow at once."""
        now = self._clock.now()
        await self._look_back(now)
        page = await self._feed.read(self._at, self._batch)
        # Only up to the first one whose publisher may still do it: the place must not move past it.
        due = list(takewhile(lambda read: not self._may_still_come(read[1], now), page))
        lacking = [
            event
            for _, event in due
            if not self._stored.take(message_id(event)) and event.created_at > now - self._oldest
        ]
        if not due:
            return False
        if lacking:
            _log.info("events published again", count=len(lacking))
            await self._publisher.publish([_publication(event) for event in lacking])
            self.republished += len(lacking)
        for _, event in due:
            if event.type == SessionErased.type and event.created_at > now - self._oldest:
                await self._publisher.purge(event.session_id)
        self._at = due[-1][0]
        if self._at > self._kept:
            if not await self._checkpoints.advance(NAME, self._kept, self._at):
                self._at = await self._checkpoints.load(NAME) or self._at
            self._kept = self._at
        return len(due) == self._batch

    async def _look_back(self, now: Micros) -> None:
        """To the oldest event that an EVENTS younger than that would hold. The kept place stays where it is: whoever
        starts in the middle of this goes back, too."""
        made = self._stored.made
        if made is None or made == self._made:
            return
        if made * 1_000_000 > now - self._oldest:
            place = await self._feed.place_before(Micros(now - self._oldest))
            if place < self._at:
                _log.info("EVENTS is new: what it would hold is looked at again")
                self._at = place
        self._made = made

    def _may_still_come(self, event: StoredEvent, now: int) -> bool:
        """A time that lies well ahead says nothing: its writer's clock is wrong, and others must not wait for it."""
        return abs(now - event.created_at) < self._patience


def message_id(event: StoredEvent) -> str:
    """What the publication of an event is known by, whoever sends it."""
    return f"{event.session_id}:{event.sequence}"


def _publication(event: StoredEvent) -> Publication:
    return Publication(event.session_id, event.sequence, envelope_of(event))
