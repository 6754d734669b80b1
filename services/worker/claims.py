"""Looks for work: after a hint, when a slot becomes free, and every second anyway."""

import asyncio
import random
from collections.abc import Sequence as Many
from typing import Protocol

import structlog

from domain.errors import Unavailable
from domain.ids import SessionId
from services.worker.leases import Leases
from services.worker.slots import Slots

log = structlog.get_logger("turnlog.worker")

_CANDIDATES_A_SLOT = 4
_CUT_SECONDS = 2.0


class Queue(Protocol):
    """What claiming needs of `PostgresWorkers`."""

    async def claimable(
        self, limit: int, *, agent_ids: Many[str] | None = None, take_over: bool = True
    ) -> list[SessionId]: ...


class Claims:
    """Keeps up to `slots` sessions busy until told to stop; a hint is worth a look, its loss costs a poll."""

    def __init__(
        self,
        queue: Queue,
        slots: Slots,
        leases: Leases,
        agent_ids: Many[str],
        *,
        count: int,
        poll_seconds: float,
    ) -> None:
        self._queue = queue
        self._slots = slots
        self._leases = leases
        self._agent_ids = agent_ids
        self._count = count
        self._poll = poll_seconds
        self._hint = asyncio.Event()
        self._busy: dict[SessionId, asyncio.Task[None]] = {}

    def wake(self) -> None:
        """There may be work."""
        self._hint.set()

    async def run(self, stopping: asyncio.Event, drain_seconds: float) -> None:
        """Until `stopping`; then nothing is claimed, what runs gets `drain_seconds` to end, and what still runs is
        handed back."""
        async with asyncio.TaskGroup() as tasks:
            stopper = tasks.create_task(self._stop_after(stopping))
            await self._leases.ahead()
            while not stopping.is_set():
                await self._fill(tasks)
                await self._rest()
            stopper.cancel()
            await self._drain(drain_seconds)

    async def _stop_after(self, stopping: asyncio.Event) -> None:
        await stopping.wait()
        self._slots.draining = True
        self._hint.set()
        log.info("worker.drains", turns=len(self._busy))

    async def _fill(self, tasks: asyncio.TaskGroup) -> None:
        free = self._count - len(self._busy)
        if free <= 0:
            return
        try:
            found = await self._queue.claimable(
                free * _CANDIDATES_A_SLOT + len(self._busy),
                agent_ids=self._agent_ids,
                take_over=self._leases.steady(),
            )
        except Unavailable:
            return
        # Workers read the same list: each takes its own part of it first.
        random.shuffle(found)
        for session_id in [session for session in found if session not in self._busy][:free]:
            task = tasks.create_task(self._slots.work(session_id), name=f"session {session_id}")
            self._busy[session_id] = task
            task.add_done_callback(lambda _, session=session_id: self._freed(session))  # type: ignore[misc]

    def _freed(self, session_id: SessionId) -> None:
        del self._busy[session_id]
        self._hint.set()

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(self._poll * random.uniform(0.8, 1.2)):
                await self._hint.wait()
        except TimeoutError:
            pass
        self._hint.clear()

    async def _drain(self, seconds: float) -> None:
        if self._busy:
            await asyncio.wait(list(self._busy.values()), timeout=seconds)
        if self._busy:
            log.info("worker.hands_back", turns=len(self._busy))
            self._slots.release_all()
            await asyncio.wait(list(self._busy.values()), timeout=_CUT_SECONDS)
        for task in list(self._busy.values()):
            task.cancel()
