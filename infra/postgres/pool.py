"""Connections: codecs and timeouts that all of Turnlog relies on.

uuid as canonical text, json and jsonb as their exact bytes, timestamptz as microseconds since 1970 (`Micros`).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg
import msgspec

from domain.errors import StoreUnavailable
from domain.ports import Statement
from infra.postgres.sql import statements

if TYPE_CHECKING:
    Pool: TypeAlias = asyncpg.Pool[asyncpg.Record]
else:
    Pool = asyncpg.Pool

_SQL = statements("connection")

# PostgreSQL counts microseconds from 2000-01-01.
_POSTGRES_EPOCH_MICROS = 946_684_800_000_000

UNREACHABLE: tuple[type[BaseException], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    OSError,
    TimeoutError,
)
"""The server is gone, going, full or starting: the outcome of what was under way is not known."""

_IN_THE_WAY: tuple[type[BaseException], ...] = (
    asyncpg.LockNotAvailableError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
)


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds that the server enforces on every connection, in milliseconds. `transaction`: for a whole one, from
    PostgreSQL 17 on; 0 is none. A client that freezes while it prepares a statement is held by nothing else."""

    statement: int = 30_000
    lock: int = 2_000
    idle_in_transaction: int = 10_000
    transaction: int = 0


def _micros_to_tuple(micros: int) -> tuple[int]:
    return (micros - _POSTGRES_EPOCH_MICROS,)


def _tuple_to_micros(value: tuple[int]) -> int:
    return value[0] + _POSTGRES_EPOCH_MICROS


def _same(value: bytes) -> bytes:
    return value


def _to_jsonb(value: bytes) -> bytes:
    return b"\x01" + value


def _from_jsonb(value: bytes) -> bytes:
    return value[1:]


async def prepare(connection: Any) -> None:
    """Set the codecs of one connection; for connections that do not come from `create_pool`."""
    await connection.set_type_codec("uuid", schema="pg_catalog", encoder=str, decoder=str, format="text")
    await connection.set_type_codec("json", schema="pg_catalog", encoder=_same, decoder=_same, format="binary")
    await connection.set_type_codec(
        "jsonb", schema="pg_catalog", encoder=_to_jsonb, decoder=_from_jsonb, format="binary"
    )
    await connection.set_type_codec(
        "timestamptz", schema="pg_catalog", encoder=_micros_to_tuple, decoder=_tuple_to_micros, format="tuple"
    )


_HAS_TRANSACTION_TIMEOUT = (17,)


async def _bound(connection: Any, milliseconds: int) -> None:
    """Of servers that do not know the setting a connection cannot ask for it."""
    if milliseconds and connection.get_server_version() >= _HAS_TRANSACTION_TIMEOUT:
        await connection.execute(_SQL["bound"], str(milliseconds))


async def _leave_clean(connection: Any) -> None:
    # The default reset costs a round trip after every use. We set nothing and hold no session locks, so all that can be
    # left is a transaction that was cut by a cancellation.
    if connection.is_in_transaction():
        await connection.execute("ROLLBACK")


POINT_LOOKUPS: Mapping[str, str] = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
}
"""Planner settings for connections that only ever look rows up by key, because their statements are planned once, maybe
when the tables were empty, and large statements take longer to plan than to run."""

KEY_RANGES: Mapping[str, str] = {**POINT_LOOKUPS, "enable_bitmapscan": "off"}
"""The same for pages in the order of a key. Where statistics are missing, or say that sessions are short, a bitmap of
all that is left of a long one, sorted for one page, looks cheaper than the index: a replay would take the square of
its length."""


async def create_pool(
    dsn: str,
    *,
    size: int,
    application: str = "turnlog",
    timeouts: Timeouts | None = None,
    connect_timeout: float = 5.0,
    planner: Mapping[str, str] | None = None,
) -> Pool:
    """A pool of at most `size` connections, opened as they are needed, so that a server that is down does not stop a
    start. `lock_timeout`: a row or advisory lock is never waited for longer, because whoever waits holds a
    connection."""
    bounds = timeouts or Timeouts()

    async def begin(connection: Any) -> None:
        await prepare(connection)
        await _bound(connection, bounds.transaction)

    pool = asyncpg.create_pool(
        dsn,
        min_size=0,
        max_size=size,
        max_inactive_connection_lifetime=300.0,
        timeout=connect_timeout,
        command_timeout=bounds.statement / 1000 + 5,
        init=begin,
        reset=_leave_clean,
        server_settings={
            "application_name": application,
            "statement_timeout": str(bounds.statement),
            "lock_timeout": str(bounds.lock),
            "idle_in_transaction_session_timeout": str(bounds.idle_in_transaction),
            "timezone": "UTC",
            "jit": "off",
            **(planner or {}),
        },
    )
    return await pool


async def fetch(pool: Pool, statement: Statement, *args: Any, timeout: float = 5.0) -> list[Any]:
    """Rows of one statement, its own snapshot, its own short use of a connection. Raises StoreUnavailable where the
    server cannot be reached, no connection becomes free within `timeout` seconds, or another transaction was in the way
    (a deadlock, a lock that is held for too long): the same statement may be tried again."""
    try:
        async with pool.acquire(timeout=timeout) as connection:
            rows: list[Any] = await connection.fetch(statement, *args)
            return rows
    except (*UNREACHABLE, *_IN_THE_WAY) as error:
        raise StoreUnavailable() from error


async def execute(pool: Pool, statement: Statement, *args: Any, timeout: float = 5.0) -> None:
    """One statement in a transaction of its own; errors as with `fetch`."""
    await fetch(pool, statement, *args, timeout=timeout)
