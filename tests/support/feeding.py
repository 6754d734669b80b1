"""Runners of feed projections in a test's own loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from domain.ports import FeedProjection
from infra.postgres.feed import PostgresFeed
from infra.postgres.feed_slots import PostgresFeedSlots, SlotState
from infra.postgres.pool import Pool
from services.projector.feeding import Feeder
from tests.support.waiting import PATIENCE, eventually


@asynccontextmanager
async def running(pool: Pool, *projections: FeedProjection, runner: str = "r", **more: Any) -> AsyncIterator[None]:
    """Each projection run by `runner` as long as the block."""
    fields: dict[str, Any] = {"lease": 1.0, "poll": 0.02, "batch": 10, **more}
    feeders = [
        Feeder(projection, PostgresFeedSlots(pool), PostgresFeed(pool), runner=runner, **fields)
        for projection in projections
    ]
    tasks = [asyncio.create_task(feeder.run()) for feeder in feeders]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        for error in ended:
            if error is not None and not isinstance(error, asyncio.CancelledError):
                raise error


async def caught_up(pool: Pool, *names: str, timeout: float = PATIENCE) -> list[SlotState]:
    """Wait until nothing is left to apply for these projections."""
    found: list[SlotState] = []

    async def done() -> bool:
        found[:] = [s for s in await PostgresFeedSlots(pool).states() if s.slot == "serving" and s.name in names]
        return len(found) == len(names) and all(state.lag_events == 0 for state in found)

    await eventually(done, f"{', '.join(names)} have caught up", timeout=timeout)
    return found
