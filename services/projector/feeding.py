"""The runner of one feed projection: claims it, applies the feed page by page, sets aside what cannot be applied.

Any number of projectors may run the same projections: each is claimed by one at a time, with a fence, and the
checkpoint moves by compare-and-set in the transaction that writes, so that no event is applied twice, whoever is slow
or dead.
"""

import asyncio
import random
from collections.abc import Callable

import structlog

from domain.errors import TurnlogError
from domain.events.envelope import StoredEvent
from domain.events.session import SessionErased
from domain.ports import Feed, FeedEvent, FeedPosition, FeedProjection, Transaction
from infra.postgres.feed_slots import ClaimLost, Place, PostgresFeedSlots, Slot
from services.projector.applying import OUTAGES, apply_all, feed_events, reason

_log = structlog.get_logger(__name__)

_OUTAGE_SECONDS = 1.0
_CUT: tuple[type[BaseException], ...] = (asyncio.CancelledError, *OUTAGES)
_NOT_THE_EVENT: tuple[type[BaseException], ...] = (ClaimLost, *OUTAGES)


class Hint:
    """Something may have been committed. Any number may wait; a hint that comes while nobody waits is not lost."""

    def __init__(self) -> None:
        self._events: list[asyncio.Event] = []

    def listener(self) -> asyncio.Event:
        """Set at every hint; its owner clears it before it looks."""
        made = asyncio.Event()
        self._events.append(made)
        return made

    def give(self) -> None:
        for event in self._events:
            event.set()


class Feeder:
    """One projection of this process; `run` is a task of the projector's."""

    def __init__(
        self,
        projection: FeedProjection,
        slots: PostgresFeedSlots,
        feed: Feed,
        *,
        runner: str,
        lease: float,
        poll: float,
        batch: int,
        hint: Hint | None = None,
        page_read: Callable[[int], None] = lambda events: None,
    ) -> None:
        """`runner`: this process's name. `lease`: seconds a claim lasts without a step. `poll`: between looks without a
        hint. `batch`: events in one transaction. `page_read`: told how many events were applied."""
        self.name = projection.name
        self._projection = projection
        self._slots = slots
        self._feed = feed
        self._runner = runner
        self._lease = lease
        self._poll = poll
        self._batch = batch
        self._hinted = (hint or Hint()).listener()
        self._page_read = page_read
        self._told = ""

    async def run(self) -> None:
        """Until cancelled; lets others have the projection at once then."""
        place: Place | None = None
        renewed = 0.0
        clock = asyncio.get_running_loop().time
        try:
            while True:
                try:
                    self._hinted.clear()
                    if place is None:
                        place = await self._claim()
                        renewed = clock()
                    more = False
                    if place is not None:
                        before = place
                        place, more = await self._step(place)
                        if place is not before:
                            renewed = clock()
                        elif clock() - renewed > self._lease / 3:
                            await self._slots.renew(self._projection.name, "serving", place.fence, self._lease)
                            renewed = clock()
                    await self._wait(0 if more else self._poll)
                except ClaimLost:
                    place = None
                    await self._wait(self._poll)
                except OUTAGES as error:
                    self._tell("projection waits for the database", error=type(error).__name__)
                    await asyncio.sleep(_OUTAGE_SECONDS)
        finally:
            if place is not None:
                await self._let_go(place)

    async def _claim(self) -> Place | None:
        name, version = self._projection.name, self._projection.version
        try:
            known = await self._slots.open(self._projection, "serving")
        except TurnlogError:
            raise
        except OUTAGES:
            raise
        except Exception as error:  # noqa: BLE001 - somebody's own SQL
            # Its text is about the definition: no event has been read.
            self._tell("the tables of a projection could not be made", error=f"{type(error).__name__}: {error}")
            return None
        if known.version != version:
            todo = f"run: turnlog rebuild {name}" if known.version < version else "this process is too old: upgrade it"
            self._tell("projection has another version", stored=known.version, have=version, todo=todo)
            return None
        # Whoever holds many comes late to the next one, so that runners which start together share.
        await asyncio.sleep(random.uniform(0, min(self._poll, 0.2)))
        place = await self._slots.claim(name, "serving", self._runner, self._lease)
        if place is not None:
            self._told = ""
            _log.info("projection runs", projection=name, version=version)
        return place

    async def _step(self, place: Place) -> tuple[Place, bool]:
        """One page; whether another one may follow at once."""
        page = await self._feed.read(place.at, self._batch)
        if not page:
            return place, False
        events = feed_events(self._projection, [stored for _, stored in page])
        after = page[-1][0]
        await self._erase_elsewhere(events)
        try:
            await self._commit(place, after, lambda tx: apply_all(self._projection, events, tx))
        except _NOT_THE_EVENT:
            raise
        except Exception as error:  # noqa: BLE001 - one of them is poison, whatever it is
            _log.warning("a page is applied one by one", projection=self._projection.name, error=type(error).__name__)
            await self._one_by_one(place, page)
        self._page_read(len(page))
        return Place(place.version, place.tables, after, place.fence), len(page) == self._batch

    async def _one_by_one(self, place: Place, page: list[tuple[FeedPosition, StoredEvent]]) -> None:
        at = place.at
        for position, stored in page:
            here = Place(place.version, place.tables, at, place.fence)
            events = feed_events(self._projection, [stored])
            try:
                await self._commit(here, position, lambda tx, events=events: apply_all(self._projection, events, tx))  # type: ignore[misc]
            except _NOT_THE_EVENT:
                raise
            except Exception as error:  # noqa: BLE001 - the projection's own code
                await self._park(here, position, events[0], reason(error))
            at = position

    async def _park(self, place: Place, position: FeedPosition, event: FeedEvent, why: str) -> None:
        name = self._projection.name

        async def park(tx: Transaction) -> None:
            await self._slots.park(tx, name, event.session_id, event.sequence, why)

        await self._commit(place, position, park)
        _log.warning(
            "event parked",
            projection=name,
            session_id=event.session_id,
            sequence=event.sequence,
            error=why.partition(":")[0],
        )

    async def _commit(self, place: Place, after: FeedPosition, write: Callable[[Transaction], object]) -> None:
        name, lease = self._projection.name, self._lease
        await self._slots.step(name, "serving", place.fence, place.at, after, lease, write)  # type: ignore[arg-type]

    async def _erase_elsewhere(self, events: list[FeedEvent]) -> None:
        """What a rebuild is making and what was put aside hold the same texts, and nobody follows the latter. It comes
        before the step, so that a process which dies in between does it again."""
        name = self._projection.name
        others: tuple[Slot, ...] = ("shadow", "previous")
        for event in events:
            if isinstance(event.data, SessionErased):
                for slot in others:
                    session_id = event.session_id
                    await self._slots.write(name, slot, lambda tx, s=session_id: self._projection.erase(s, tx))  # type: ignore[misc]

                async def forget(tx: Transaction, session_id: str = event.session_id) -> None:
                    await self._slots.forget_reasons(tx, name, session_id)

                await self._slots.write(name, "serving", forget)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._hinted.wait()
        except TimeoutError:
            pass

    async def _let_go(self, place: Place) -> None:
        try:
            await asyncio.shield(self._slots.release(self._projection.name, "serving", place.fence))
        except _CUT:
            _log.info("a claim is left to expire", projection=self._projection.name)

    def _tell(self, line: str, **fields: object) -> None:
        """Once, not at every look."""
        text = f"{line} {fields}"
        if text != self._told:
            self._told = text
            _log.warning(line, projection=self._projection.name, **fields)
