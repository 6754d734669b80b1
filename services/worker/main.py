"""The worker's process: `run` executes turns until SIGTERM or SIGINT."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import structlog

from domain.errors import Unavailable, VersionMismatch
from domain.ids import WorkerId
from domain.runtime import ArchiveBounds
from infra.nats.notifier import open_notifier
from infra.nats.streams import open_streams
from infra.nats.subscriber import NatsSubscriber
from infra.nats.work_queue import HookQueue, Job
from infra.postgres.blobs import PostgresBlobs
from infra.postgres.catalogue import AgentEntry, PostgresCatalogue
from infra.postgres.history import PostgresHistory
from infra.postgres.hook_jobs import PostgresHookJobs
from infra.postgres.workers import PostgresWorkers
from infra.settings import Settings
from infra.system import SystemClock, SystemIds
from infra.telemetry.metrics import Metrics
from services.lifecycle import Life
from services.measuring import measure_broker, measure_outbox, measure_pipeline, measure_pool, served
from services.wiring import open_nats, open_pipeline, open_pool
from services.worker.agents import LoadedAgent, load_agents
from services.worker.attachments import StoredAttachments
from services.worker.claims import Claims
from services.worker.executor.bounds import Bounds
from services.worker.executor.executor import Tools
from services.worker.hooks.jobs import JobBounds, Jobs
from services.worker.leases import Leases
from services.worker.measures import measure_hooks, measure_turns
from services.worker.slots import Slots

log = structlog.get_logger("turnlog.worker")

_ANNOUNCE_SECONDS = 1.0


def bounds(settings: Settings) -> Bounds:
    """Times and sizes of executions."""
    return Bounds(
        delta_seconds=settings.worker.delta_seconds,
        rollup_seconds=settings.worker.rollup_seconds,
        snapshot_seconds=settings.worker.snapshot_seconds,
        slowest_snapshot_seconds=max(settings.worker.slowest_snapshot_seconds, settings.worker.snapshot_seconds),
        result_bytes=int(settings.limits.tool_result_bytes),
        # The rest of a payload, and what the estimate of an item misses, need some room.
        event_bytes=int(settings.limits.event_bytes) * 15 // 16,
        item_bytes=min(256 * 1024, int(settings.limits.event_bytes) // 2),
        requirement_seconds=settings.turn.requirement_seconds,
    )


def job_bounds(settings: Settings) -> JobBounds:
    """Times and counts of background hooks."""
    return JobBounds(
        slots=settings.worker.hook_slots,
        attempts=settings.worker.hook_attempts,
        seconds=settings.worker.hook_seconds,
        hold=settings.turn.lease_seconds,
        pause=settings.worker.hook_retry_seconds,
        poll=settings.worker.hook_poll_seconds,
    )


def attachment_bounds(settings: Settings) -> dict[str, Any]:
    """Sizes of attachments, and of what archives among them hold."""
    limits = settings.limits
    return {
        "file_bytes": int(limits.attachment_bytes),
        "all_bytes": int(limits.attachments_bytes),
        "archive": ArchiveBounds(
            entries=limits.archive_entries,
            unpacked_bytes=int(limits.archive_unpacked_bytes),
            ratio=limits.archive_ratio,
        ),
    }


async def run(settings: Settings) -> int:
    """Raises SettingMissing, UnloadableObject, and whatever a user's module raises while it is imported."""
    settings.dsn("worker")
    # First of all, since it may take seconds: a worker that has a lease must be able to keep it.
    agents = load_agents(settings.worker.agents, settings.worker.model)
    clock, ids, metrics = SystemClock(), SystemIds(), Metrics()
    worker_id = WorkerId(ids.uuid7())
    life = Life()
    with life.signals(), served(metrics, settings.worker.metrics_port, settings.worker.metrics_host):
        async with (
            open_nats(settings, "worker") as broker,
            open_streams(broker) as streams,
            open_notifier(broker) as notifier,
            open_pipeline(settings, "worker", notifier) as pipeline,
            open_pool(settings, "worker") as pool,
        ):
            subscriber = NatsSubscriber(broker)
            leases = Leases(
                lambda: _workers(settings),
                worker_id,
                lease_seconds=settings.turn.lease_seconds,
                heartbeat_seconds=settings.turn.heartbeat_seconds,
                clock=clock,
                on_lost=lambda turn_id: slots.lost(turn_id),
                on_interrupted=lambda turn_id: slots.interrupt(turn_id),
            )
            attachments = StoredAttachments(PostgresBlobs(pool), **attachment_bounds(settings))
            tools = Tools(
                pipeline=pipeline,
                turn_log=PostgresHistory(pool),
                notifier=notifier,
                lease=leases,
                clock=clock,
                ids=ids,
                bounds=bounds(settings),
                tell_hook=lambda job, agent_id: queue.tell(Job(job.job_id, agent_id, job.hook), first=True),
                attachments=attachments,
            )
            hooks = {agent.agent_id: agent.hooks for agent in agents}
            queue = HookQueue(broker, notifier.outbox, settings.turn.lease_seconds)
            told = (tools.turn_log, job_bounds(settings), attachments)
            jobs = Jobs(hooks, PostgresHookJobs(pool), queue, pipeline, *told)
            runtimes = {agent.agent_id: agent.runtime for agent in agents}
            slots = Slots(worker_id, runtimes, tools, leases, subscriber, hooks, count=settings.worker.slots)
            claims = Claims(
                PostgresWorkers(
                    pool,
                    settings.turn.lease_seconds,
                    turn_seconds=settings.turn.timeout_seconds,
                    silent_seconds=settings.turn.silence_seconds,
                ),
                slots,
                leases,
                [agent.agent_id for agent in agents],
                poll_seconds=settings.worker.poll_seconds,
            )
            streams.listen(slots.roll_up_again)
            measure_pipeline(pipeline, metrics.registry)
            measure_broker(broker, metrics.registry)
            measure_outbox(notifier.outbox, metrics.registry)
            measure_pool(pool, metrics.registry)
            measure_turns(slots, metrics.registry)
            measure_hooks(jobs, metrics.registry)
            leases.start()
            return_code = 0
            try:
                async with asyncio.TaskGroup() as tasks:
                    watching = tasks.create_task(leases.watch())
                    announcing = tasks.create_task(_announce(PostgresCatalogue(pool), agents))
                    wake = await subscriber.subscribe_wake(settings.worker.pool, claims.wake)
                    working = tasks.create_task(claims.run(life.stopping, settings.worker.drain_seconds))
                    following = tasks.create_task(jobs.run(life.stopping, settings.worker.drain_seconds))
                    log.info("worker.runs", worker=worker_id, agents=[agent.agent_id for agent in agents])
                    await asyncio.wait(
                        [working, tasks.create_task(life.stopping.wait())], return_when=asyncio.FIRST_COMPLETED
                    )
                    announcing.cancel()
                    await working
                    await following
                    watching.cancel()
                    wake.close()
            except* VersionMismatch as group:
                # In the middle of a turn: without this worker's lease another version takes it over.
                log.error("worker.version_mismatch", reason=str(next(leaves(group))))
                return_code = 1
            finally:
                await leases.stop()
    return return_code


def leaves(group: BaseExceptionGroup[VersionMismatch]) -> Iterator[BaseException]:
    """The errors themselves, however deep their groups are."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


@asynccontextmanager
async def _workers(settings: Settings) -> AsyncIterator[PostgresWorkers]:
    async with open_pool(settings, "worker", size=1) as pool:
        yield PostgresWorkers(pool, settings.turn.lease_seconds)


async def _announce(catalogue: PostgresCatalogue, agents: list[LoadedAgent]) -> None:
    """Say what this worker can execute, as soon as the database is there."""
    entries = [AgentEntry(agent.agent_id, agent.name, agent.component, agent.details) for agent in agents]
    while True:
        try:
            await catalogue.announce(entries)
        except Unavailable:
            await asyncio.sleep(_ANNOUNCE_SECONDS)
        else:
            return
