"""The worker's lease: renewed by a thread with a loop and a connection of its own, so that users' code that blocks the
worker's loop, or keeps its connections, does not look like a death."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Protocol

import structlog

from domain import replies
from domain.clock import Monotonic
from domain.errors import Unavailable
from domain.ids import Fence, SessionId, TurnId, WorkerId
from infra.postgres.workers import Heartbeat, Held

log = structlog.get_logger("turnlog.worker")

_RETRY_PART = 0.1
_COLLECT_SECONDS = 3600.0


class Workers(Protocol):
    """What a heartbeat needs of `PostgresWorkers`."""

    async def heartbeat(self, worker_id: WorkerId, held: list[Held]) -> Heartbeat: ...

    async def unregister(self, worker_id: WorkerId) -> None: ...

    async def collect(self, dead_for: float) -> None: ...


class _Claim:
    __slots__ = ("claim", "last_frame")

    def __init__(self, claim: replies.ClaimedTurn, now: float) -> None:
        self.claim = claim
        self.last_frame = now


class Leases:
    """Implements `executor.lease.Lease`. `open_workers` is entered in the thread. What a heartbeat learns comes as
    calls in the event loop that made this object: `on_lost` and `on_interrupted` for single turns."""

    def __init__(
        self,
        open_workers: Callable[[], AbstractAsyncContextManager[Workers]],
        worker_id: WorkerId,
        *,
        lease_seconds: float,
        heartbeat_seconds: float,
        clock: Monotonic,
        on_lost: Callable[[str], None],
        on_interrupted: Callable[[str], None],
    ) -> None:
        self._open_workers = open_workers
        self._worker_id = worker_id
        self._lease = lease_seconds
        self._heartbeat = heartbeat_seconds
        self._clock = clock
        self._on_lost = on_lost
        self._on_interrupted = on_interrupted
        self._home = asyncio.get_running_loop()
        self._broken: asyncio.Future[None] = self._home.create_future()
        self._waiters: list[asyncio.Future[None]] = []
        # Shared with the thread: the lock is held for a few instructions, never over an await.
        self._lock = threading.Lock()
        self._held: dict[str, _Claim] = {}
        self._deadline = 0.0
        self._up_since: float | None = None
        self._thread = threading.Thread(target=self._live, name="lease", daemon=True)
        self._beating: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._stopping = False

    def start(self) -> None:
        """The first heartbeat registers the worker."""
        self._thread.start()

    async def watch(self) -> None:
        """Belongs to the owner's TaskGroup, until cancelled: raises what the thread died of, since a worker that cannot
        renew its lease must end instead of holding turns that are not its own any more."""
        await asyncio.shield(self._broken)

    async def stop(self) -> None:
        """Ends the lease: what is still held may be taken over at once."""
        with self._lock:
            self._stopping = True
            beating = self._beating
        if beating is not None:
            loop, woken = beating
            with suppress(RuntimeError):  # a thread that has ended has closed its loop
                loop.call_soon_threadsafe(woken.set)
        await asyncio.to_thread(self._thread.join, self._lease)

    def deadline(self) -> float:
        return self._deadline

    def steady(self) -> bool:
        """The database has been there for a whole lease: only then may others be taken for dead. After an outage
        everybody's lease has run out, and everybody needs a chance to renew it."""
        up_since = self._up_since
        return up_since is not None and self._clock.monotonic() - up_since >= self._lease

    async def ahead(self) -> None:
        while self._clock.monotonic() >= self._deadline:
            waiter: asyncio.Future[None] = self._home.create_future()
            self._waiters.append(waiter)
            await waiter

    def hold(self, claim: replies.ClaimedTurn) -> None:
        """Heartbeats ask after this turn from now on."""
        with self._lock:
            self._held[claim.turn_id] = _Claim(claim, self._clock.monotonic())

    def release(self, turn_id: str) -> None:
        """It is over."""
        with self._lock:
            self._held.pop(turn_id, None)

    def touched(self, turn_id: str) -> None:
        held = self._held.get(turn_id)
        if held is not None:
            held.last_frame = self._clock.monotonic()

    def _live(self) -> None:
        try:
            asyncio.run(self._beat())
        except Exception as error:  # noqa: BLE001 - the thread's root: its owner is told
            self._home.call_soon_threadsafe(self._broken.set_exception, error)

    async def _beat(self) -> None:
        woken = asyncio.Event()
        with self._lock:
            self._beating = (asyncio.get_running_loop(), woken)
        async with self._open_workers() as workers:
            collect_at = 0.0
            while not self._stopping:
                pause = self._heartbeat if await self._once(workers) else self._heartbeat * _RETRY_PART
                if self._up_since is not None and self._clock.monotonic() >= collect_at:
                    collect_at = self._clock.monotonic() + _COLLECT_SECONDS
                    await self._tidy(workers)
                try:
                    async with asyncio.timeout(pause):
                        await woken.wait()
                except TimeoutError:
                    pass
            await self._leave(workers)

    async def _once(self, workers: Workers) -> bool:
        now = self._clock.monotonic()
        with self._lock:
            held = [
                Held(
                    SessionId(held.claim.session_id),
                    TurnId(held.claim.turn_id),
                    Fence(held.claim.fence),
                    max(0.0, now - held.last_frame),
                )
                for held in self._held.values()
            ]
        asked_at = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._lease / 2):
                beat = await workers.heartbeat(self._worker_id, held)
        except (Unavailable, TimeoutError):
            if self._up_since is not None:
                log.warning("lease.heartbeat_failed")
            self._up_since = None
            return False
        if self._up_since is None:
            self._up_since = asked_at
        # From when it was asked: the database counts from some time after that.
        self._deadline = asked_at + beat.expires_in
        self._home.call_soon_threadsafe(self._learn, beat, {claim.turn_id: claim.fence for claim in held})
        return True

    def _learn(self, beat: Heartbeat, asked: dict[TurnId, Fence]) -> None:
        """In the worker's own loop."""
        for turn_id in beat.lost:
            held = self._held.get(turn_id)
            if held is not None and held.claim.fence == asked[turn_id]:
                self._on_lost(turn_id)
        for turn_id in beat.interrupted:
            self._on_interrupted(turn_id)
        # After those that have lost their turn: a tool that waits for the lease must not start then.
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def _tidy(self, workers: Workers) -> None:
        try:
            await workers.collect(_COLLECT_SECONDS)
        except Unavailable:
            log.info("lease.tidy_failed")

    async def _leave(self, workers: Workers) -> None:
        try:
            async with asyncio.timeout(self._lease / 2):
                await workers.unregister(self._worker_id)
        except (Unavailable, TimeoutError):
            log.info("lease.runs_out", seconds=self._lease)
