"""A rebuild of a feed projection while everything goes on: shadow tables, then a swap; and the way back.

The shadow has a checkpoint of its own, so that a rebuild which was killed goes on from it. What is served is stopped
for the comparison and the swap only; readers of the tables do not notice.
"""

import asyncio
import os
import time
from collections.abc import Callable

from domain.events.envelope import StoredEvent
from domain.ports import Feed, FeedPosition, FeedProjection
from infra.postgres.feed_slots import ClaimLost, Place, PostgresFeedSlots, Slot
from services.projector.applying import OUTAGES, apply_all, feed_events, reason
from services.projector.rebuild_report import Difference, RebuildRefused, Report

_LEASE_SECONDS = 5.0
_RENEW_SECONDS = 1.0
_NOT_THE_EVENT: tuple[type[BaseException], ...] = (ClaimLost, *OUTAGES)

_LONG_SECONDS = 0.4

Progress = Callable[[int], None]
_Page = list[tuple[FeedPosition, StoredEvent]]


class FeedRebuild:
    """Runs one rebuild; a second one of the same projection at the same time is refused."""

    def __init__(
        self, projection: FeedProjection, slots: PostgresFeedSlots, feed: Feed, *, batch: int, accept: bool
    ) -> None:
        """`batch`: events in one transaction, to begin with. `accept`: swap also where the new rows differ from those
        served."""
        self._projection = projection
        self._name = projection.name
        self._slots = slots
        self._feed = feed
        self._batch = batch
        self._accept = accept
        self._me = f"rebuild {os.getpid()}"

    async def run(self, progress: Progress = lambda applied: None) -> Report:
        """Build, compare, swap. A report with differences was not swapped unless they were accepted. Raises
        RebuildRefused (an event that cannot be applied, or another rebuild), StoreUnavailable."""
        known = await self._slots.open(self._projection, "shadow")
        if known.version != self._projection.version or tuple(known.tables) != tuple(self._projection.tables):
            await self._slots.drop(self._name, "shadow")
            await self._slots.open(self._projection, "shadow")
        shadow = await self._claimed("shadow")
        shadow = await self._catch_up("shadow", shadow, progress)
        served = await self._slots.place(self._name, "serving")
        report = Report()
        if served is not None and served.version == self._projection.version:
            shadow, served = await self._level(shadow, progress)
            found = await self._compared(shadow, served)
            for table, (rows, sessions) in found.items():
                report.differences.append(Difference(", ".join(sessions), table, "served", f"{rows} rows"))
            if found and not self._accept:
                await self._slots.release(self._name, "shadow", shadow.fence)
                await self._slots.release(self._name, "serving", served.fence)
                report.refused = 1
                return report
        await self._slots.swap(self._name, "shadow", shadow.fence)
        report.flipped = 1
        return report

    async def back(self, progress: Progress = lambda applied: None) -> Report:
        """What the last swap put aside is served again, after it has caught up. Raises RebuildRefused."""
        previous = await self._slots.place(self._name, "previous")
        if previous is None:
            raise RebuildRefused(reason=f"{self._name} has no previous tables: there is nothing to go back to")
        if previous.version != self._projection.version:
            reason = f"version {previous.version} of {self._name} is not in this release: run the one that has it"
            raise RebuildRefused(reason=reason)
        place = await self._catch_up("previous", await self._claimed("previous"), progress)
        await self._slots.swap(self._name, "previous", place.fence)
        return Report(flipped=1)

    async def _claimed(self, slot: Slot) -> Place:
        clock = asyncio.get_running_loop().time
        end = clock() + 2 * _LEASE_SECONDS
        while clock() < end:
            place = await self._slots.claim(self._name, slot, self._me, _LEASE_SECONDS)
            if place is not None:
                return place
            # Perhaps that of a rebuild which was killed a moment ago.
            await asyncio.sleep(_RENEW_SECONDS)
        raise RebuildRefused(reason=f"another rebuild of {self._name} runs")

    async def _catch_up(self, slot: Slot, place: Place, progress: Progress, upto: FeedPosition | None = None) -> Place:
        """Until nothing is left, or up to that place. The next page is read while one is applied; pages grow while a
        transaction takes little time and shrink before one takes a second."""
        size = self._batch
        page = await self._read(place.at, size, upto)
        while page:
            began = time.monotonic()
            try:
                async with asyncio.TaskGroup() as tasks:
                    reading = tasks.create_task(self._read(page[-1][0], size, upto))
                    await self._apply(slot, place, page)
            except BaseExceptionGroup as failed:
                raise failed.exceptions[0] from failed
            progress(len(page))
            place = Place(place.version, place.tables, page[-1][0], place.fence)
            took = time.monotonic() - began
            if took > _LONG_SECONDS:
                size = max(self._batch // 4, size // 2)
            elif took < _LONG_SECONDS / 4:
                size = min(4 * self._batch, 2 * size)
            page = reading.result()
        return place

    async def _read(self, after: FeedPosition, size: int, upto: FeedPosition | None) -> _Page:
        page = await self._feed.read(after, size)
        return page if upto is None else [read for read in page if read[0] <= upto]

    async def _apply(self, slot: Slot, place: Place, page: _Page) -> None:
        events = feed_events(self._projection, [stored for _, stored in page])
        try:
            await self._slots.step(
                self._name,
                slot,
                place.fence,
                place.at,
                page[-1][0],
                _LEASE_SECONDS,
                lambda tx: apply_all(self._projection, events, tx),
            )
        except _NOT_THE_EVENT:
            raise
        except Exception as error:
            first, last = page[0][1], page[-1][1]
            where = f"{first.session_id} {first.sequence} and {last.session_id} {last.sequence}"
            why = reason(error).partition(":")[0]
            raise RebuildRefused(reason=f"{self._name} failed between {where}: {why}") from error

    async def _level(self, shadow: Place, progress: Progress) -> tuple[Place, Place]:
        """Both at the same place, the served one stopped there."""
        while True:
            served = await self._slots.claim(self._name, "serving", self._me, _LEASE_SECONDS, force=True)
            assert served is not None
            await self._slots.renew(self._name, "shadow", shadow.fence, _LEASE_SECONDS)
            shadow = await self._catch_up("shadow", shadow, progress, upto=served.at)
            if shadow.at == served.at:
                return shadow, served
            # The shadow is ahead: what is served goes on from here, by our hand.
            await self._catch_up("serving", served, lambda applied: None, upto=shadow.at)

    async def _compared(self, shadow: Place, served: Place) -> dict[str, tuple[int, list[str]]]:
        """Long tables take long to compare: both claims are kept meanwhile."""

        async def keep() -> None:
            while True:
                await self._slots.renew(self._name, "shadow", shadow.fence, _LEASE_SECONDS)
                await self._slots.renew(self._name, "serving", served.fence, _LEASE_SECONDS)
                await asyncio.sleep(_RENEW_SECONDS)

        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(keep())
            found = await self._slots.differences(self._name, self._projection.tables, "shadow")
            keeping.cancel()
        return found
