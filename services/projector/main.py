"""The projector role: the relay, and the place of feed projections.

Each task reads the feed at its own pace from its own checkpoint. A feed projection (a later release's) becomes one more
task beside the relay.
"""

import asyncio

import structlog
from nats.errors import Error as NatsError

from domain.ports import Publication
from infra.nats.notifier import NatsNotifier
from infra.nats.stored import open_stored_ids
from infra.nats.streams import stream_configurations
from infra.nats.subjects import Subjects
from infra.postgres.checkpoints import PostgresCheckpoints
from infra.postgres.feed import PostgresFeed
from infra.settings import Settings
from infra.system import SystemClock
from services.lifecycle import Life
from services.projector.relay import Relay, Undelivered
from services.wiring import open_pool, open_publisher

_log = structlog.get_logger(__name__)

# Clocks of broker, database and ours may differ by this much; what is read twice costs a header.
_CLOCK_DIFFERENCE_SECONDS = 60.0


class ConfirmedPublisher:
    """Implements `services.projector.relay.Publisher`: waits until the broker answered after the last message."""

    def __init__(self, notifier: NatsNotifier) -> None:
        self._notifier = notifier

    async def publish(self, publications: list[Publication]) -> None:
        self._notifier.publish_events(publications)
        try:
            await self._notifier.outbox.emptied()
        except (NatsError, OSError, TimeoutError) as error:
            raise Undelivered from error


async def run(settings: Settings) -> int:
    """Until SIGTERM or SIGINT. Nothing is lost by an end at any moment: every task goes on from its checkpoint."""
    life = Life()
    clock = SystemClock()
    kept_seconds = float(stream_configurations(Subjects(settings.namespace))[0].max_age or 0)

    def since() -> float:
        return clock.now() / 1_000_000 - kept_seconds - _CLOCK_DIFFERENCE_SECONDS

    with life.signals():
        async with (
            open_pool(settings, "projector", size=2) as pool,
            open_publisher(settings, "projector") as (broker, notifier),
            open_stored_ids(broker, since) as stored,
        ):
            relay = Relay(
                PostgresFeed(pool),
                PostgresCheckpoints(pool),
                stored,
                ConfirmedPublisher(notifier),
                clock,
                patience=settings.projector.relay_seconds,
                oldest=kept_seconds,
                poll=settings.projector.poll_seconds,
                batch=settings.projector.batch_events,
            )
            async with asyncio.TaskGroup() as tasks:
                relaying = tasks.create_task(relay.run(), name="relay")
                _log.info("projector runs")
                await life.stopping.wait()
                relaying.cancel()
    return 0
