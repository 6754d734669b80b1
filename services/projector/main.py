"""The projector role: the relay and the feed projections.

Each is a task that reads the feed at its own pace from its own checkpoint.
"""

import asyncio
import os
import socket

import structlog
from nats.errors import Error as NatsError

from domain.ids import SessionId
from domain.ports import Publication
from infra.nats.connection import BrokerConnection, NotConnected
from infra.nats.notifier import NatsNotifier
from infra.nats.stored import open_stored_ids
from infra.nats.streams import stream_configurations
from infra.nats.subjects import Subjects
from infra.pipeline.notices import version_notices
from infra.postgres.checkpoints import PostgresCheckpoints
from infra.postgres.feed import PostgresFeed
from infra.postgres.feed_slots import PostgresFeedSlots
from infra.postgres.pool import Pool
from infra.settings import Settings
from infra.system import SystemClock, SystemIds
from infra.telemetry.metrics import Metrics
from projections.serving import session_projections
from services.lifecycle import Life
from services.measuring import measure_broker, measure_outbox, measure_pool
from services.projector.applying import OUTAGES
from services.projector.feeding import Feeder, Hint
from services.projector.measures import Measures
from services.projector.projections import all_projections
from services.projector.relay import Relay, Undelivered
from services.wiring import open_pool, open_publisher

_log = structlog.get_logger(__name__)

# Clocks of broker, database and ours may differ by this much; what is read twice costs a header.
_CLOCK_DIFFERENCE_SECONDS = 60.0
_SLICE_BYTES = 4 << 20


class ConfirmedPublisher:
    """Implements `services.projector.relay.Publisher`: waits until the broker answered after the last message."""

    def __init__(self, notifier: NatsNotifier, broker: BrokerConnection, subjects: Subjects) -> None:
        self._notifier = notifier
        self._broker = broker
        self._subjects = subjects

    async def purge(self, session_id: SessionId) -> None:
        """From EVENTS and LIVE. Raises Undelivered."""
        subjects = self._subjects
        try:
            streams = self._broker.client.jetstream()
            await streams.purge_stream(subjects.events_stream, subject=subjects.event(session_id))
            await streams.purge_stream(subjects.live_stream, subject=subjects.live_of(session_id))
        except (NatsError, OSError, TimeoutError, NotConnected) as error:
            raise Undelivered from error

    async def publish(self, publications: list[Publication]) -> None:
        """Few at a time: the outbox drops its oldest when too much waits. Raises Undelivered."""
        outbox = self._notifier.outbox
        before, bytes_ = outbox.lost, 0
        for number, publication in enumerate(publications, start=1):
            self._notifier.publish_events([publication])
            bytes_ += len(publication.envelope)
            if bytes_ > _SLICE_BYTES or number == len(publications):
                bytes_ = 0
                try:
                    await outbox.emptied()
                except (NotConnected, NatsError, OSError, TimeoutError) as error:
                    raise Undelivered from error
        if outbox.lost != before:
            raise Undelivered


async def notice_old_versions(pool: Pool) -> None:
    """Read models of sessions that wait for a rebuild are named; a database that is away is no reason not to start."""
    try:
        for line in await version_notices(pool, session_projections()):
            _log.warning(line)
    except OUTAGES as error:
        _log.info("versions were not compared", error=type(error).__name__)


async def run(settings: Settings) -> int:
    """Until SIGTERM or SIGINT. Nothing is lost by an end at any moment: every task goes on from its checkpoint."""
    life = Life()
    clock = SystemClock()
    projections = all_projections(settings.projector.projections)
    hint = Hint()
    kept_seconds = float(stream_configurations(Subjects(settings.namespace))[0].max_age or 0)

    def since() -> float:
        return clock.now() / 1_000_000 - kept_seconds - _CLOCK_DIFFERENCE_SECONDS

    with life.signals():
        async with (
            open_pool(settings, "projector", size=4) as pool,
            open_publisher(settings, "projector") as (broker, notifier),
            open_stored_ids(broker, since, hint.give) as stored,
        ):
            relay = Relay(
                PostgresFeed(pool),
                PostgresCheckpoints(pool),
                stored,
                ConfirmedPublisher(notifier, broker, Subjects(settings.namespace)),
                clock,
                patience=settings.projector.relay_seconds,
                oldest=kept_seconds,
                poll=settings.projector.poll_seconds,
                batch=settings.projector.batch_events,
            )
            metrics = Metrics()
            measures = Measures(metrics, pool, settings.projector.poll_seconds, clock.monotonic)
            measures.relaying(relay)
            measure_broker(broker, metrics.registry)
            measure_outbox(notifier.outbox, metrics.registry)
            measure_pool(pool, metrics.registry)
            name = f"{socket.gethostname()}:{os.getpid()}:{SystemIds().uuid7()}"
            feeders = [
                Feeder(
                    projection,
                    PostgresFeedSlots(pool),
                    PostgresFeed(pool),
                    runner=name,
                    lease=settings.projector.lease_seconds,
                    poll=settings.projector.poll_seconds,
                    batch=settings.projector.batch_events,
                    hint=hint,
                    page_read=measures.counting(projection.name),
                )
                for projection in projections
            ]
            await notice_old_versions(pool)
            with measures.served(settings.projector.metrics_port, settings.projector.metrics_host):
                async with asyncio.TaskGroup() as tasks:
                    running = [tasks.create_task(relay.run(), name="relay")]
                    running += [tasks.create_task(feeder.run(), name=feeder.name) for feeder in feeders]
                    running.append(tasks.create_task(measures.run(), name="lag of projections"))
                    _log.info("projector runs", projections=[projection.name for projection in projections])
                    await life.stopping.wait()
                    for task in running:
                        task.cancel()
    return 0
