"""What the projector's metrics read: turns that are not over, what holds the feed, how far the relay lies behind."""

import asyncpg
import pytest

from domain import commands
from domain.ids import CommandKey, WorkerId
from domain.ports import FeedPosition
from infra.embedded import EmbeddedPostgres
from infra.postgres.checkpoints import PostgresCheckpoints
from infra.postgres.operations import PostgresOperations
from infra.postgres.pool import create_pool
from infra.system import SystemIds
from services.projector.horizon import HorizonAge
from tests.support.databases import Database
from tests.support.relaying import session_of
from tests.support.stand import open_pipeline


async def test_turns_are_counted_by_what_keeps_them(database: Database) -> None:
    ids = SystemIds()
    agent = await database.dsn_of("turnlog_agent")
    pool = await create_pool(await database.dsn_of("turnlog_projector"), size=1)
    try:
        async with open_pipeline(agent) as pipeline:
            operations = PostgresOperations(pool)
            assert (await operations.turns()).startable_seconds == 0
            idle, busy = await session_of(pipeline, 2), await session_of(pipeline, 3)
            waiting = await operations.turns()
            assert (waiting.waiting, waiting.running, waiting.stopped) == (5, 0, 0)
            assert waiting.startable_seconds > 0
            # Nobody has registered that worker: what it claims runs, and nobody holds it.
            for session in (idle, busy):
                worker = WorkerId(ids.uuid7())
                claim = commands.ClaimTurn(session_id=session, key=CommandKey(ids.uuid7()), worker_id=worker)
                await pipeline.execute(claim)
            running = await operations.turns()
            assert (running.waiting, running.running, running.ownerless) == (3, 2, 2)
            assert running.startable_seconds == 0, "what waits, waits for the turn before it"
            assert running.longest_seconds > 0
            assert (await operations.behind("relay")).events == 0, "a relay that never ran has no place"
            await PostgresCheckpoints(pool).begin("relay", FeedPosition())
            behind = await operations.behind("relay")
            assert behind.events == 9
            assert behind.seconds > 0
    finally:
        await pool.close()


@pytest.mark.every_postgres
async def test_any_open_transaction_of_the_server_ages_the_horizon(
    database: Database, postgres: EmbeddedPostgres
) -> None:
    """Another role's, in another database: what it wrote does not matter, and its start is not ours to see."""
    pool = await create_pool(await database.dsn_of("turnlog_projector"), size=1)
    stranger, another = [await asyncpg.connect(postgres.superuser_dsn) for _ in range(2)]
    clock = [100.0]
    age = HorizonAge(lambda: clock[0])
    try:
        operations = PostgresOperations(pool)
        transaction = stranger.transaction()
        await transaction.start()
        held = int(await stranger.fetchval("SELECT pg_current_xact_id()::text"))
        await another.execute("SELECT pg_current_xact_id()")
        first = await operations.horizon()
        assert first[0] <= held < first[1]
        age.look(*first)
        clock[0] += 61.0
        assert age.look(held, held + 3) >= 0
        clock[0] += 61.0
        assert age.look(held, held + 9) >= 61.0, "the alarm's threshold is a minute"
        await transaction.rollback()
        after = await operations.horizon()
        assert after[0] > held
        assert age.look(after[1], after[1]) == 0.0
    finally:
        await stranger.close()
        await another.close()
        await pool.close()
