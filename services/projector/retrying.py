"""A second chance for events that a projection could not apply."""

from domain.events.envelope import StoredEvent
from domain.ids import Sequence
from domain.ports import FeedProjection, Transaction
from infra.postgres.feed_slots import Parked, PostgresFeedSlots, Write
from infra.postgres.pool import Pool
from infra.postgres.store import PostgresEventStore
from services.projector.applying import OUTAGES, apply_all, feed_event, reason

_PAGE_BYTES = 1


async def retry(pool: Pool, projection: FeedProjection) -> tuple[int, int]:
    """Apply every parked event of the projection, each in a transaction of its own: how many succeeded, how many are
    still parked. They come late, after events that followed them. Raises StoreUnavailable."""
    slots = PostgresFeedSlots(pool)
    done = left = 0
    for parked in await slots.parked(projection.name):
        page = await PostgresEventStore(pool).page(
            parked.session_id, Sequence(parked.sequence - 1), _PAGE_BYTES, limit_events=1
        )
        try:
            await slots.write(projection.name, "serving", _applying(slots, projection, parked, page.events[0]))
            done += 1
        except OUTAGES:
            raise
        except Exception as error:  # noqa: BLE001 - the projection's own code
            await slots.write(projection.name, "serving", _parking(slots, parked, reason(error)))
            left += 1
    return done, left


def _applying(slots: PostgresFeedSlots, projection: FeedProjection, parked: Parked, stored: StoredEvent) -> Write:
    async def write(tx: Transaction) -> None:
        if await slots.unpark(tx, parked):
            await apply_all(projection, [feed_event(stored)], tx)

    return write


def _parking(slots: PostgresFeedSlots, parked: Parked, why: str) -> Write:
    async def write(tx: Transaction) -> None:
        await slots.park(tx, parked.name, parked.session_id, parked.sequence, why)

    return write
