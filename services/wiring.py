"""The one place where settings become adapters. Each is a context: what it opens is closed when the block ends.

No adapter waits for its server: a process starts while PostgreSQL or NATS is away, and its readiness says so.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from domain.decisions import Limits
from domain.ports import Notifier
from infra.nats.connection import BrokerConnection, open_broker
from infra.nats.notifier import NatsNotifier, open_notifier
from infra.nats.options import BrokerOptions
from infra.nats.streams import open_streams
from infra.pipeline.pipeline import Pipeline
from infra.pipeline.pools import open_pipeline_pools
from infra.pipeline.settings import PipelineSettings
from infra.postgres.pool import KEY_RANGES, Pool, Timeouts, create_pool
from infra.settings import Role, Settings
from infra.system import SystemClock, SystemIds
from infra.telemetry.traces import Traces
from projections.serving import session_projections


def timeouts(settings: Settings) -> Timeouts:
    """What the database enforces on every connection. No transaction of a pool for queries needs longer than a
    statement may: the longest are a projector's, of a page of events each, and while one is open the feed stands."""
    postgres = settings.postgres
    return Timeouts(
        statement=int(postgres.statement_timeout_seconds * 1000),
        lock=int(postgres.lock_timeout_seconds * 1000),
        idle_in_transaction=int(postgres.idle_in_transaction_seconds * 1000),
        transaction=int(postgres.statement_timeout_seconds * 1000),
    )


@asynccontextmanager
async def open_pool(
    settings: Settings, role: Role, *, size: int | None = None, planner: Mapping[str, str] | None = None
) -> AsyncIterator[Pool]:
    """Connections of the role to its own database, for queries. Raises SettingMissing."""
    pool = await create_pool(
        settings.dsn(role),
        size=size or settings.postgres.pool_size,
        application=f"turnlog {role}",
        timeouts=timeouts(settings),
        connect_timeout=settings.postgres.connect_seconds,
        planner=planner,
    )
    try:
        yield pool
    finally:
        await _close(pool)


@asynccontextmanager
async def open_reads(settings: Settings, role: Role) -> AsyncIterator[Pool]:
    """Connections for what is read of sessions by their keys, page by page. Raises SettingMissing."""
    async with open_pool(settings, role, planner=KEY_RANGES) as pool:
        yield pool


def broker_options(settings: Settings, role: Role) -> BrokerOptions:
    """How the role reaches the broker. Raises SettingMissing."""
    user, password = settings.nats_credentials(role)
    return BrokerOptions(
        namespace=settings.namespace,
        role=role,
        servers=settings.nats.urls,
        user=user,
        password=password,
        replicas=settings.nats.replicas,
    )


@asynccontextmanager
async def open_nats(settings: Settings, role: Role) -> AsyncIterator[BrokerConnection]:
    """The process's connection to the broker, which may be away at any time."""
    async with open_broker(broker_options(settings, role)) as broker:
        yield broker


@asynccontextmanager
async def open_publisher(
    settings: Settings, role: Role, traces: Traces | None = None
) -> AsyncIterator[tuple[BrokerConnection, NatsNotifier]]:
    """For roles that publish: the connection, the streams kept in being, and the notifier."""
    async with open_nats(settings, role) as broker, open_streams(broker), open_notifier(broker, traces) as notifier:
        yield broker, notifier


def pipeline_settings(settings: Settings) -> PipelineSettings:
    """Bounds of the command pipeline."""
    return PipelineSettings(
        lanes=settings.postgres.lanes,
        group_size=settings.postgres.group_commands,
        lock_timeout=settings.postgres.lock_timeout_seconds,
        waiters=settings.postgres.waiting_pool_size,
        payload_bytes=int(settings.limits.event_bytes),
        hook_again_seconds=settings.worker.hook_poll_seconds * 2,
        wake_pool=settings.worker.pool,
        limits=Limits(
            queue_depth=settings.limits.queue_depth,
            active_turns=settings.limits.active_turns,
            input_bytes=int(settings.limits.input_bytes),
            poison_deaths=settings.turn.attempts,
            turn_seconds=settings.turn.timeout_seconds,
            silent_seconds=settings.turn.silence_seconds,
        ),
    )


@asynccontextmanager
async def open_pipeline(settings: Settings, role: Role, notifier: Notifier) -> AsyncIterator[Pipeline]:
    """The command pipeline, with pools of its own. Raises SettingMissing."""
    application = f"turnlog {role} pipeline"
    async with open_pipeline_on(settings, settings.dsn(role), notifier, application=application) as pipeline:
        yield pipeline


@asynccontextmanager
async def open_pipeline_on(
    settings: Settings, dsn: str, notifier: Notifier, *, application: str = "turnlog pipeline"
) -> AsyncIterator[Pipeline]:
    """The same on a database that the caller names."""
    sizes = pipeline_settings(settings)
    pools = await open_pipeline_pools(dsn, sizes, application=application, timeouts=timeouts(settings))
    try:
        async with Pipeline(
            pools.groups,
            pools.waiting,
            projections=session_projections(),
            notifier=notifier,
            clock=SystemClock(),
            ids=SystemIds(),
            settings=sizes,
        ) as pipeline:
            yield pipeline
    finally:
        await _close(pools.groups)
        await _close(pools.waiting)


# A statement may hang on a server that is gone; the process must end all the same.
_CLOSE_SECONDS = 2.0


async def _close(pool: Pool) -> None:
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            await pool.close()
    except TimeoutError:
        pool.terminate()
