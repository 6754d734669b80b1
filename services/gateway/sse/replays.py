"""Reading replay pages from the agent service, for all sessions of this process."""

import asyncio
from asyncio import Task
from collections.abc import Callable, Coroutine
from typing import Any

from services.gateway.sse.meter import Meter
from services.gateway.sse.ports import Agent, ReplayPage

Spawn = Callable[[Coroutine[Any, Any, None]], "Task[None]"]
"""Runs a task that somebody owns."""


class Replays:
    """So many pages at once, no more: a storm of reconnects must not become one of queries. What sessions share of
    them is `pages`'."""

    def __init__(self, agent: Agent, in_flight: int, meter: Meter) -> None:
        self._meter = meter
        self._agent = agent
        self._room = asyncio.Semaphore(in_flight)

    async def read(self, session_id: str, after: int, limit: int | None = None) -> ReplayPage:
        """The page after that cursor, of so many events at most, as committed when the agent service got the question.
        Raises SessionNotFound, Unavailable."""
        async with self._room:
            self._meter.pages += 1
            return await self._agent.page(session_id, after, limit=limit)
