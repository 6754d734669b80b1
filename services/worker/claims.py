"""Looks for work: after a hint, when a slot becomes free, and every second anyway."""

import asyncio
import random
from collections.abc import Sequence as Many
from typing import Protocol

import msgspec
import structlog

from domain.errors import Unavailable
from domain.ids import SessionId
from infra.postgres.workers import Startable
from services.worker.leases import Leases
from services.worker.slots import Slots

log = structlog.get_logger("turnlog.worker")

_CANDIDATES_A_SLOT = 4
_CUT_SECONDS = 4.0
"""For handing back, after the drain; a supervisor that is told the drain's length waits for longer."""
_CONTENDED_SECONDS = 2.0
_FIRST_PAUSE = 0.02
_MOST_DOUBLINGS = 10


class Refused(msgspec.Struct, frozen=True):
    """A session that gave no claim although it was listed; left alone `until`, on the loop's clock."""

    until: float
    times: int


class Queue(Protocol):
    """What claiming needs of `PostgresWorkers`."""

    async def claimable(
        self, limit: int, *, agent_ids: Many[str] | None = None, take_over: bool = True
    ) -> list[Startable]: ...


class Claims:
    """Keeps all slots busy until told to stop; a hint is worth a look, its loss costs a poll."""

    def __init__(
        self,
        queue: Queue,
        slots: Slots,
        leases: Leases,
        agent_ids: Many[str],
        *,
        poll_seconds: float,
    ) -> None:
        self._queue = queue
        self._slots = slots
        self._leases = leases
        self._agent_ids = agent_ids
        self._poll = poll_seconds
        self._hint = asyncio.Event()
        self._busy: dict[SessionId, asyncio.Task[bool]] = {}
        self._refused: dict[SessionId, Refused] = {}
        self._contended_until = 0.0

    def wake(self) -> None:
        """There may be work."""
        self._hint.set()

    async def run(self, stopping: asyncio.Event, drain_seconds: float) -> None:
        """Until `stopping`; then nothing is claimed, what runs gets `drain_seconds` to end, and what still runs is
        handed back."""
        async with asyncio.TaskGroup() as tasks:
            stopper = tasks.create_task(self._stop_after(stopping))
            leased = tasks.create_task(self._leases.ahead())
            # A worker whose database is away can be told to end, too.
            await asyncio.wait((leased, stopper), return_when=asyncio.FIRST_COMPLETED)
            leased.cancel()
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
        free = self._slots.count - len(self._busy)
        if free <= 0:
            return
        try:
            found = await self._queue.claimable(
                free * _CANDIDATES_A_SLOT + len(self._busy) + len(self._refused),
                agent_ids=self._agent_ids,
                take_over=self._leases.steady(),
            )
        except Unavailable:
            return
        listed = {candidate.session_id for candidate in found}
        self._refused = {session: refused for session, refused in self._refused.items() if session in listed}
        now = asyncio.get_running_loop().time()
        ready = [one for one in found if one.session_id not in self._busy and not self._waits(one.session_id, now)]
        if now < self._contended_until:
            # Others read the same list: each takes its own part of it. Who is alone serves the one that waits longest.
            random.shuffle(ready)
        for one in ready[:free]:
            task = tasks.create_task(self._slots.work(one), name=f"session {one.session_id}")
            self._busy[one.session_id] = task
            task.add_done_callback(lambda done, session=one.session_id: self._freed(session, done))  # type: ignore[misc]

    def _waits(self, session_id: SessionId, now: float) -> bool:
        refused = self._refused.get(session_id)
        return refused is not None and refused.until > now

    def _freed(self, session_id: SessionId, done: asyncio.Task[bool]) -> None:
        del self._busy[session_id]
        if done.cancelled() or done.exception() is not None or done.result():
            self._refused.pop(session_id, None)
            self._hint.set()
            return
        # Listed and yet refused: its lock was taken, its work goes on elsewhere, another clock. Asking again at once
        # would never end; sessions behind it must not wait for it either.
        times = min(self._refused[session_id].times + 1, _MOST_DOUBLINGS) if session_id in self._refused else 0
        pause = min(self._poll, _FIRST_PAUSE * 2**times)
        loop = asyncio.get_running_loop()
        self._refused[session_id] = Refused(until=loop.time() + pause, times=times)
        self._contended_until = loop.time() + _CONTENDED_SECONDS
        loop.call_later(pause, self._hint.set)

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
        if self._busy:
            log.warning("worker.cuts_off", turns=len(self._busy))
        for task in list(self._busy.values()):
            task.cancel()
