"""Pages of the feed as a projection gets them, and what happens to an event that it cannot take."""

from collections.abc import Sequence as Many

import asyncpg
import msgspec

from domain.errors import StoreUnavailable
from domain.events.envelope import StoredEvent
from domain.events.registry import UnknownEvent
from domain.events.session import SessionErased
from domain.ports import FeedEvent, FeedProjection, Transaction
from infra.postgres.pool import UNREACHABLE

_REASON_CHARACTERS = 300
_DRIVERS = frozenset({"asyncpg", "msgspec"})
"""Where they raise says less than who called them."""

# What says nothing about the event: the same step is due again.
OUTAGES: tuple[type[BaseException], ...] = (
    *UNREACHABLE,
    StoreUnavailable,
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.UndefinedTableError,
    asyncpg.InsufficientPrivilegeError,
)


def feed_event(stored: StoredEvent) -> FeedEvent:
    """Without what is private. A payload that cannot be read is an unknown event: the audit tells of it."""
    try:
        data = stored.event()
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
        data = UnknownEvent(name=stored.type, version=stored.schema_version, raw=stored.payload)
    return FeedEvent(
        session_id=stored.session_id,
        sequence=stored.sequence,
        event_id=stored.event_id,
        type=stored.type,
        turn_id=stored.turn_id,
        created_at=stored.created_at,
        metadata=stored.metadata,
        data=data,
    )


def feed_events(projection: FeedProjection, page: Many[StoredEvent]) -> list[FeedEvent]:
    """Those that the projection takes (`types`; all where it names none), and what an erase says to each."""
    types = getattr(projection, "types", None)
    if types is None:
        return [feed_event(stored) for stored in page]
    taken = {SessionErased.type, *types}
    return [feed_event(stored) for stored in page if stored.type in taken]


async def apply_all(projection: FeedProjection, events: list[FeedEvent], tx: Transaction) -> None:
    """In order; an erase takes away what came before it and nothing that follows."""
    page: list[FeedEvent] = []
    for event in events:
        page.append(event)
        if isinstance(event.data, SessionErased):
            await projection.apply(page, tx)
            await projection.erase(event.session_id, tx)
            page = []
    if page:
        await projection.apply(page, tx)


def reason(error: BaseException) -> str:
    """Why an event was set aside, in one line: the error's type and where it was raised. Its words may be a user's."""
    place = ""
    trace = error.__traceback__
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__", "")
        if not place or module.partition(".")[0] not in _DRIVERS:
            place = f"{module}.{trace.tb_frame.f_code.co_qualname}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__}: {place}"[:_REASON_CHARACTERS]
