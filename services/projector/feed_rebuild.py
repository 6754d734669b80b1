"""A rebuild of a feed projection while everything goes on: shadow tables, then a swap; and the way back.

The shadow has a checkpoint of its own, so that a rebuild which was killed goes on from it. What is served is stopped
for the comparison and the swap only; readers of the tables do not notice.
"""

import asyncio
import os
from collections.abc import Callable

from domain.ports import Feed, FeedPosition, FeedProjection
from infra.postgres.feed_slots import ClaimLost, Place, PostgresFeedSlots, Slot
from services.projector.applying import OUTAGES, apply_all, feed_event, reason
from services.projector.rebuild_report import Difference, RebuildRefused, Report

_LEASE_SECONDS = 5.0
_RENEW_SECONDS = 1.0
_NOT_THE_EVENT: tuple[type[BaseException], ...] = (ClaimLost, *OUTAGES)

Progress = Callable[[int], None]


class FeedRebuild:
    """Runs one rebuild; a second one of the same projection at the same time is refused."""

    def __init__(
        self, projection: FeedProjection, slots: PostgresFeedSlots, feed: Feed, *, batch: int, accept: bool
    ) -> None:
        """`accept`: swap also where the new rows differ from those served."""
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
        """Until nothing is left, or up to that place."""
        while True:
            page = await self._feed.read(place.at, self._batch)
            page = [read for read in page if upto is None or read[0] <= upto]
            if not page:
                return place
            events = [feed_event(stored) for _, stored in page]
            after = page[-1][0]
            try:
                await self._slots.step(
                    self._name,
                    slot,
                    place.fence,
                    place.at,
                    after,
                    _LEASE_SECONDS,
                    lambda tx, events=events: apply_all(self._projection, events, tx),  # type: ignore[misc]
                )
            except _NOT_THE_EVENT:
                raise
            except Exception as error:
                first, last = events[0], events[-1]
                where = f"{first.session_id} {first.sequence} and {last.session_id} {last.sequence}"
                why = reason(error).partition(":")[0]
                raise RebuildRefused(reason=f"{self._name} failed between {where}: {why}") from error
            progress(len(page))
            place = Place(place.version, place.tables, after, place.fence)

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
