"""A database full of sessions, and the bare fetch that rebuilds and audits are measured against."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from benchmarks.giant import EVENTS_A_TURN, put_giant
from infra.embedded import EmbeddedPostgres
from infra.postgres.audit_reader import HIGHEST, LOWEST
from infra.postgres.pool import prepare
from infra.postgres.sql import statements
from tests.support.databases import Database
from tests.support.migrations import agent
from tests.support.places import server_directory
from tests.support.planted import copies, put
from tests.support.story import story

_PAGE = 2000


@asynccontextmanager
async def server() -> AsyncIterator[EmbeddedPostgres]:
    """An empty PostgreSQL of our own."""
    with server_directory() as directory:
        started = EmbeddedPostgres(directory / "postgres")
        await started.start()
        try:
            yield started
        finally:
            await started.stop()


async def empty_database(started: EmbeddedPostgres, name: str) -> Database:
    """Migrated."""
    await started.create_database(name)
    await agent(started, name)
    return Database(name, started)


async def full_database(started: EmbeddedPostgres, name: str, sessions: int) -> tuple[Database, int]:
    """With so many sessions of 41 events that have everything in them; the number of events."""
    database = await empty_database(started, name)
    admin = await asyncpg.connect(database.dsn)
    async with admin.transaction():
        events = await put(admin, copies(story(), sessions))
    await admin.execute("VACUUM ANALYZE")
    await admin.close()
    return database, events


async def giant_database(started: EmbeddedPostgres, events: int) -> Database:
    """With one session of so many events."""
    database = await empty_database(started, "giant")
    connection = await asyncpg.connect(database.dsn)
    await prepare(connection)
    # COPY needs the default one.
    await connection.reset_type_codec("uuid", schema="pg_catalog")
    await put_giant(connection, events // EVENTS_A_TURN)
    await connection.execute("VACUUM ANALYZE")
    await connection.close()
    return database


async def bare(dsn: str, tables: Sequence[str] = ("events",)) -> int:
    """All columns of all rows of these tables (as the audit reads them), in pages by a cursor, with asyncpg's own
    codecs, looking at nothing; the number of events."""
    connection = await asyncpg.connect(dsn, server_settings={"jit": "off", "statement_timeout": "600000"})
    count = 0
    try:
        async with connection.transaction(readonly=True):
            for name in tables:
                cursor = await connection.cursor(statements("audit")[name], LOWEST, HIGHEST)
                while rows := await cursor.fetch(_PAGE):
                    count += len(rows) if name == "events" else 0
    finally:
        await connection.close()
    return count


async def timed(work: Callable[..., Awaitable[int]], *arguments: Any) -> tuple[float, int]:
    """Seconds, and what it returned."""
    begin = time.perf_counter()
    count = await work(*arguments)
    return time.perf_counter() - begin, count
