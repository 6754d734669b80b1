"""Replay pages for all viewers of this process: the same page of a session is asked for once while it is on its way."""

import asyncio
from asyncio import Future, Task
from collections.abc import Callable, Coroutine
from typing import Any

from domain.errors import AgentUnavailable
from services.gateway.sse.meter import Meter
from services.gateway.sse.ports import Agent, ReplayPage

Spawn = Callable[[Coroutine[Any, Any, None]], "Task[None]"]
"""Runs a task that somebody owns."""


class Replays:
    """Pages of committed events. Nothing is kept: a page lives as long as somebody writes it out."""

    def __init__(self, agent: Agent, spawn: "Spawn", in_flight: int, meter: Meter) -> None:
        self._meter = meter
        self._agent = agent
        self._spawn = spawn
        self._room = asyncio.Semaphore(in_flight)
        self._asked: dict[tuple[str, int], Future[ReplayPage]] = {}

    def ask(self, session_id: str, after: int) -> "Future[ReplayPage]":
        """The page after that cursor, perhaps asked for by somebody else a moment ago: whoever awaits it shields it.
        It may therefore end below a head that the caller knows of; asking again after its last event reads afresh."""
        key = (session_id, after)
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = asyncio.get_running_loop().create_future()
            asked.add_done_callback(_seen)
            self._spawn(self._fetch(key, asked))
        return asked

    async def page(self, session_id: str, after: int) -> ReplayPage:
        """`ask`, awaited. Raises SessionNotFound, Unavailable."""
        return await asyncio.shield(self.ask(session_id, after))

    async def _fetch(self, key: tuple[str, int], asked: "Future[ReplayPage]") -> None:
        try:
            async with self._room:
                self._meter.pages += 1
                page = await self._agent.page(*key)
        except Exception as error:  # noqa: BLE001 - root of a task: whoever waits for the page gets the error
            asked.set_exception(error)
        else:
            asked.set_result(page)
        finally:
            del self._asked[key]
            if not asked.done():
                # This process ends.
                asked.set_exception(AgentUnavailable())


def _seen(asked: "Future[ReplayPage]") -> None:
    """A page that nobody waits for any more may fail in silence."""
    if not asked.cancelled():
        asked.exception()
