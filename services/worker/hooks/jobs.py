"""Hooks in the background: jobs that the log has scheduled are run by any worker that has their agent, at least once,
until one try succeeds or all are used up. Then the log has their end, and nothing of them is left elsewhere."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

import msgspec
import structlog

from domain.commands import EndHook
from domain.errors import Rejection, Unavailable
from domain.history import TurnLog
from domain.ids import CommandKey
from domain.ports import CommandPipeline
from domain.runtime import Attachments
from infra.nats.work_queue import Delivery, HookQueue, Job, QueueAway
from infra.postgres.hook_jobs import HookTry, PostgresHookJobs
from services.worker.executor.failures import failure_of
from services.worker.hooks.hook import NO_HOOKS, Hook, Hooks
from services.worker.hooks.in_line import stored_result
from services.worker.hooks.told import NO_ATTACHMENTS, told

log = structlog.get_logger("turnlog.worker")

_FETCH_SECONDS = 5.0
_AWAY_SECONDS = 1.0
_RETRY_SECONDS = 0.2
_ELSEWHERE_SECONDS = 1.0
_DUE_AT_ONCE = 100
_LONGEST_PAUSE = 60.0
_CUT_SECONDS = 2.0


class JobBounds(msgspec.Struct, frozen=True, kw_only=True):
    """`slots`: jobs at a time; `attempts`: tries of a job; `seconds`: for one try; `hold`: seconds without a sign after
    which a job goes to another worker; `pause`: seconds before the second try, doubled before each further one; `poll`:
    between looks for jobs that the work queue has lost."""

    slots: int = 8
    attempts: int = 5
    seconds: float = 300.0
    hold: float = 15.0
    pause: float = 1.0
    poll: float = 5.0


class Jobs:
    """One a worker. `counts` are tries by what became of them."""

    def __init__(
        self,
        hooks: Mapping[str, Hooks],
        jobs: PostgresHookJobs,
        queue: HookQueue,
        pipeline: CommandPipeline,
        turn_log: TurnLog,
        bounds: JobBounds,
        attachments: Attachments = NO_ATTACHMENTS,
    ) -> None:
        """`hooks`: by agent id."""
        self.counts = dict.fromkeys(("completed", "failed", "retried", "released"), 0)
        self._hooks = hooks
        self._jobs = jobs
        self._queue = queue
        self._pipeline = pipeline
        self._turn_log = turn_log
        self._bounds = bounds
        self._attachments = attachments
        self._running: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()

    async def run(self, stopping: asyncio.Event, drain_seconds: float) -> None:
        """Until `stopping`; what runs then gets `drain_seconds`, and what still runs is left to another worker."""
        if not any(hooks.background() for hooks in self._hooks.values()):
            return
        async with asyncio.TaskGroup() as tasks:
            looking = [tasks.create_task(self._take(tasks)), tasks.create_task(self._tell_again())]
            await stopping.wait()
            for task in looking:
                task.cancel()
            if self._running:
                await asyncio.wait(self._running, timeout=drain_seconds)
            for task in self._running:
                task.cancel()

    async def _take(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            free = self._bounds.slots - len(self._running)
            if free <= 0:
                self._freed.clear()
                await self._freed.wait()
                continue
            try:
                deliveries = await self._queue.fetch(free, _FETCH_SECONDS)
            except QueueAway:
                await asyncio.sleep(_AWAY_SECONDS)
                continue
            for delivery in deliveries:
                task = tasks.create_task(self._work(delivery), name=f"hook {delivery.job.job_id}")
                self._running.add(task)
                task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        self._freed.set()

    async def _tell_again(self) -> None:
        while True:
            with contextlib.suppress(Unavailable):
                for due in await self._jobs.due(_DUE_AT_ONCE, self._bounds.poll * 2):
                    self._queue.tell(Job(due.job_id, due.agent_id, due.hook), first=False)
            await asyncio.sleep(self._bounds.poll)

    async def _work(self, delivery: Delivery) -> None:
        job = delivery.job
        hook = self._hooks.get(job.agent_id, NO_HOOKS).named(job.hook)
        if hook is None:
            await delivery.later(_ELSEWHERE_SECONDS)  # a worker that has it will take it
            return
        try:
            tried = await self._jobs.begin(job.job_id, self._bounds.hold)
        except Unavailable:
            await delivery.later(_ELSEWHERE_SECONDS)
            return
        if tried is None:
            await delivery.done()
            return
        try:
            await self._try(tried, hook, delivery)
        except asyncio.CancelledError:
            # Drained, or somebody else has it now.
            self.counts["released"] += 1
            with contextlib.suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(_CUT_SECONDS):
                    await self._jobs.let_go(tried, 0.0, uncounted=True)
                    await delivery.later(0.0)
            raise

    async def _try(self, tried: HookTry, hook: Hook, delivery: Delivery) -> None:
        bounds = self._bounds
        error: str | None = None
        result: object = None
        if tried.attempts > bounds.attempts:
            error = "Every try ended with the death of its worker."
        else:
            try:
                async with self._held(tried, delivery), asyncio.timeout(bounds.seconds):
                    result = await self._call(tried, hook)
            except Lost:
                return
            except Exception as failed:  # noqa: BLE001 - the root of users' code: whatever it raises ends this try only
                error = failure_of(failed).message
                log.info("hook.failed", hook=tried.hook, job=tried.job_id, error=type(failed).__name__)
                if tried.attempts < bounds.attempts:
                    await self._again(tried, delivery)
                    return
        ended = EndHook(
            session_id=tried.session_id,
            key=CommandKey(f"hook:{tried.job_id}"),
            by="worker",
            turn_id=tried.turn_id,
            job_id=tried.job_id,
            attempts=min(tried.attempts, bounds.attempts),
            result=result,
            error=error,
        )
        await self._end(tried, ended, delivery)

    async def _call(self, tried: HookTry, hook: Hook) -> object:
        events = await self._turn_log.turn_events(tried.session_id, tried.turn_id)
        run = told(tried, events, self._attachments, hook.member)
        if run is None:
            raise LookupError("the log does not know this turn's end")
        return stored_result(hook.name, await hook.call(run))

    async def _again(self, tried: HookTry, delivery: Delivery) -> None:
        self.counts["retried"] += 1
        pause = min(self._bounds.pause * 2 ** (tried.attempts - 1), _LONGEST_PAUSE)
        with contextlib.suppress(Unavailable):
            await self._jobs.let_go(tried, pause + self._bounds.poll * 2)
        await delivery.later(pause)

    async def _end(self, tried: HookTry, ended: EndHook, delivery: Delivery) -> None:
        """The same key settles it, however long the store is away: another try meanwhile ends it first, or not."""
        while True:
            try:
                if not await self._jobs.hold(tried, self._bounds.hold):
                    break  # gone with its session, or another worker's by now: its end is not ours to write
                await self._pipeline.execute(ended)
            except Unavailable:
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            except Rejection as refused:
                log.error("hook.refused", hook=tried.hook, job=tried.job_id, code=refused.code)
                break
            self.counts["failed" if ended.error is not None else "completed"] += 1
            break
        await delivery.done()

    @contextlib.asynccontextmanager
    async def _held(self, tried: HookTry, delivery: Delivery) -> AsyncIterator[None]:
        """Keeps the job ours, in the database and at the broker. Raises Lost where another worker has it."""
        lost = False
        owner = asyncio.current_task()
        assert owner is not None

        async def keep() -> None:
            nonlocal lost
            while True:
                await asyncio.sleep(self._bounds.hold / 3)
                await delivery.under_way()
                with contextlib.suppress(Unavailable):
                    if not await self._jobs.hold(tried, self._bounds.hold):
                        lost = True
                        owner.cancel()
                        return

        keeping = asyncio.create_task(keep(), name=f"holding {tried.job_id}")
        try:
            yield
        except asyncio.CancelledError:
            if lost and owner.uncancel() == 0:
                raise Lost from None
            raise
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)


class Lost(Exception):
    """Another worker has the job, or it is gone."""
