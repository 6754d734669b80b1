"""Who counts as alive: a worker whose lease runs, and of its claims only those that its heartbeats name (K09)."""

import asyncpg
import pytest

from domain.errors import StoreUnavailable
from domain.ids import Fence, SessionId, TurnId, WorkerId
from infra.postgres.pool import Pool, Timeouts, create_pool
from infra.postgres.workers import Held, PostgresWorkers
from tests.support.databases import Database
from tests.support.stand import Stand, postgres_stand
from tests.support.waiting import eventually

LEASE = 1.0


async def _orphans(workers: PostgresWorkers) -> set[SessionId]:
    return {found.session_id for found in await workers.claimable(100, take_over=True) if found.orphan}


async def _claimed(stand: Stand, workers: PostgresWorkers) -> tuple[SessionId, Held, WorkerId]:
    """A session with a running turn, its claim as its holder names it, and the worker."""
    session, worker = await stand.create(), await stand.worker()
    await stand.submit(session)
    await workers.heartbeat(worker, [])
    claim = await stand.claim(session, worker)
    return session, Held(session, TurnId(claim.turn_id), Fence(claim.fence), 0.0), worker


async def _stand(database: Database) -> tuple[str, Pool]:
    dsn = await database.dsn_of("turnlog_worker")
    return dsn, await create_pool(dsn, size=2)


async def test_k09_a_claim_that_no_heartbeat_names_ends_by_itself(database: Database) -> None:
    """Its reply was lost: the worker lives and renews its lease, but nobody executes the turn."""
    dsn, pool = await _stand(database)
    async with postgres_stand(dsn, pool) as stand:
        workers = PostgresWorkers(pool, LEASE)
        forgotten, _, worker = await _claimed(stand, workers)
        named, held, other = await _claimed(stand, workers)
        assert await _orphans(workers) == set()

        async def found() -> set[SessionId]:
            await workers.heartbeat(worker, [])
            await workers.heartbeat(other, [held])
            return await _orphans(workers)

        assert await eventually(found, "the forgotten claim is an orphan") == {forgotten}
        assert named not in await found()
    await pool.close()


async def test_a_heartbeat_after_an_outage_renews_what_it_names(database: Database) -> None:
    """The lease and the claim ran out together while the database was away; nobody has taken over."""
    dsn, pool = await _stand(database)
    async with postgres_stand(dsn, pool) as stand:
        workers = PostgresWorkers(pool, LEASE)
        session, held, worker = await _claimed(stand, workers)
        connection = await asyncpg.connect(database.dsn)
        await connection.execute("UPDATE workers SET expires_at = clock_timestamp() - interval '1 hour'")
        await connection.execute("UPDATE claims SET seen_at = clock_timestamp() - interval '1 hour'")
        await connection.close()
        assert await _orphans(workers) == {session}
        assert (await workers.heartbeat(worker, [held])).lost == set()
        assert await _orphans(workers) == set()
    await pool.close()


async def test_silence_is_told_as_a_duration(database: Database) -> None:
    """No clock of a worker's counts: one that is an hour slow must not make a busy turn look silent."""
    dsn, pool = await _stand(database)
    async with postgres_stand(dsn, pool) as stand:
        workers = PostgresWorkers(pool, LEASE)
        session, held, worker = await _claimed(stand, workers)
        connection = await asyncpg.connect(database.dsn)
        await connection.execute("UPDATE claims SET last_frame_at = clock_timestamp() - interval '1 hour'")
        await workers.heartbeat(worker, [Held(session, held.turn_id, held.fence, 5.0)])
        told = await connection.fetchval(
            "SELECT extract(EPOCH FROM clock_timestamp() - last_frame_at)::float8 FROM claims"
        )
        assert 5.0 <= told < 30.0
        await connection.close()
    await pool.close()


async def test_a_heartbeat_that_somebody_is_in_the_way_of_may_be_tried_again(database: Database) -> None:
    """The finish of a turn holds the row of its claim; a heartbeat that waited too long for it is no broken one."""
    dsn = await database.dsn_of("turnlog_worker")
    pool = await create_pool(dsn, size=2, timeouts=Timeouts(lock=100))
    async with postgres_stand(dsn, pool) as stand:
        workers = PostgresWorkers(pool, LEASE)
        _, held, worker = await _claimed(stand, workers)
        connection = await asyncpg.connect(database.dsn)
        async with connection.transaction():
            await connection.execute("SELECT FROM claims FOR UPDATE")
            with pytest.raises(StoreUnavailable):
                await workers.heartbeat(worker, [held])
        assert (await workers.heartbeat(worker, [held])).lost == set()
        await connection.close()
    await pool.close()
