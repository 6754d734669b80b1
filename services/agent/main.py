"""The agent service's process: `run` serves until SIGTERM or SIGINT."""

import asyncio

import structlog

from domain.errors import StoreUnavailable
from infra.postgres.blobs import PostgresBlobs
from infra.postgres.catalogue import PostgresCatalogue
from infra.postgres.feed_reads import PostgresFeedReads
from infra.postgres.history import PostgresHistory
from infra.postgres.hook_runs import PostgresHookRuns
from infra.postgres.read_models import PostgresReadModels
from infra.postgres.store import PostgresEventStore
from infra.settings import Settings
from infra.system import SystemClock
from infra.telemetry.metrics import Metrics
from infra.telemetry.traces import Traces
from services.addresses import bound
from services.agent.app import create_app
from services.agent.collecting import collect
from services.agent.deps import AgentDeps
from services.http_log import HttpLog
from services.lifecycle import Life, serve
from services.measuring import measure_broker, measure_outbox, measure_pipeline, measure_pool
from services.tracing import TracedPipeline, traced
from services.wiring import open_pipeline, open_pool, open_publisher, open_reads

log = structlog.get_logger("turnlog.agent")

# The answer must be on its way before the gateway gives up on it and asks elsewhere.
_DEADLINE_PART = 0.9


async def run(settings: Settings) -> int:
    """Raises SettingMissing, CannotListen, TracingMissing."""
    with traced(settings, "agent") as traces:
        return await _run(settings, traces)


async def _run(settings: Settings, traces: Traces | None) -> int:
    secret = settings.service_secret()
    life = Life()
    metrics = Metrics()
    listener = bound(settings.agent.host, settings.agent.port, "TURNLOG_AGENT_PORT")
    async with (
        open_publisher(settings, "agent", traces) as (broker, notifier),
        open_pipeline(settings, "agent", notifier) as pipeline,
        open_reads(settings, "agent") as reads,
        open_pool(settings, "agent") as pool,
    ):
        read_models, blobs = PostgresReadModels(reads), PostgresBlobs(pool)
        measure_pipeline(pipeline, metrics.registry)
        measure_broker(broker, metrics.registry)
        measure_outbox(notifier.outbox, metrics.registry)
        measure_pool(reads, metrics.registry)

        async def database() -> None:
            await read_models.epoch()

        async def nats() -> None:
            if not broker.is_connected:
                raise ConnectionError

        async def life_goes_on() -> None:
            if not life.ready:
                raise StoreUnavailable()

        deps = AgentDeps(
            secret=secret,
            pipeline=pipeline if traces is None else TracedPipeline(pipeline, traces),
            store=PostgresEventStore(reads),
            read_models=read_models,
            history=PostgresHistory(reads),
            catalogue=PostgresCatalogue(pool),
            feed_reads=PostgresFeedReads(pool),
            hook_runs=PostgresHookRuns(pool),
            blobs=blobs,
            clock=SystemClock(),
            metrics=metrics,
            page_bytes=int(settings.limits.replay_page_bytes),
            attachment_bytes=int(settings.limits.attachment_bytes),
            command_seconds=settings.agent.request_seconds * _DEADLINE_PART,
            ready={"postgres": database, "nats": nats, "draining": life_goes_on},
        )
        with life.signals():
            log.info("agent_listens", host=settings.agent.host, port=listener.getsockname()[1])
            async with asyncio.TaskGroup() as tasks:
                collecting = tasks.create_task(collect(blobs))
                # At debug: a gateway's line tells of the request that people made.
                await serve(HttpLog(create_app(deps), metrics.registry, log.debug), listener, life)
                collecting.cancel()
    return 0
