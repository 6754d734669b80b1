"""An outsider holds one session's lock: strangers do not notice, its own commands wait, claims do not."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from domain import commands
from domain.commands import ClaimTurn
from domain.errors import LockTimeout, NothingToClaim
from domain.ids import Ordinal, SessionId
from infra.pipeline.group import lock_key
from infra.pipeline.pools import open_pipeline_pools
from infra.pipeline.settings import PipelineSettings
from infra.postgres.pool import Timeouts, create_pool
from infra.settings import Settings
from services.projector.generations import rebuild_pool
from services.wiring import timeouts
from tests.support.databases import Database
from tests.support.stand import Stand, postgres_stand
from tests.support.waiting import eventually

pytestmark = pytest.mark.every_postgres

_EVERY = 0.1


class Outsider:
    """Holds session locks on a connection of its own."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._connection = connection

    async def hold(self, session_id: SessionId) -> None:
        await self._connection.execute("SELECT pg_advisory_lock($1)", lock_key(session_id))

    async def is_waited_for(self) -> bool:
        waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)"
        return bool(await self._connection.fetchval(waiting))

    async def release(self) -> None:
        await self._connection.execute("SELECT pg_advisory_unlock_all()")


@pytest.fixture
async def outsider(database: Database) -> AsyncIterator[Outsider]:
    connection = await asyncpg.connect(database.dsn)
    yield Outsider(connection)
    await connection.close()


async def test_a_client_that_freezes_between_two_messages_gives_its_locks_back(database: Database) -> None:
    """While a statement is being prepared the server counts a transaction as active, so that neither the limit of idle
    transactions nor that of statements ends it."""
    bounds = Timeouts(idle_in_transaction=500)
    pools = await open_pipeline_pools(await database.dsn_of("turnlog_worker"), PipelineSettings(), timeouts=bounds)
    other = await asyncpg.connect(database.dsn)
    try:
        async with pools.groups.acquire() as frozen:
            if frozen.get_server_version() < (17,):
                pytest.skip("PostgreSQL before 17 has no transaction_timeout")
            await frozen.execute("BEGIN")
            await frozen.execute("SELECT pg_advisory_xact_lock(7)")
            await frozen.prepare("SELECT 'told of, not run'")
            assert (
                await other.fetchval("SELECT state FROM pg_stat_activity WHERE pid = $1", frozen.get_server_pid())
                == "active"
            )

            async def let_go() -> bool:
                return bool(await other.fetchval("SELECT pg_try_advisory_lock(7)"))

            await eventually(let_go, "the server ends the transaction")
    finally:
        await other.close()
        await pools.close()


async def test_every_pool_has_a_limit_for_a_whole_transaction(database: Database) -> None:
    """Those of queries and rebuilds too: one that is open holds the feed back, whoever opened it."""
    dsn, settings = await database.dsn_of("turnlog_worker"), Settings()
    pipeline = await open_pipeline_pools(dsn, PipelineSettings(), timeouts=timeouts(settings))
    queries = await create_pool(dsn, size=1, timeouts=timeouts(settings))
    rebuild = await rebuild_pool(dsn, size=1)
    found = []
    for pool in (pipeline.groups, pipeline.waiting, queries, rebuild):
        async with pool.acquire() as connection:
            if connection.get_server_version() >= (17,):
                found.append(await connection.fetchval("SHOW transaction_timeout"))
            else:
                found.append(await connection.fetchval("SHOW idle_in_transaction_session_timeout"))
        await pool.close()
    assert found in (["10s", "10s", "30s", "30s"], ["10s"] * 4)


@pytest.fixture
async def on_stand(database: Database) -> AsyncIterator[Callable[..., Awaitable[None]]]:
    """Runs a body on a stand with given settings."""
    dsn = await database.dsn_of("turnlog_worker")
    pool = await create_pool(dsn, size=2)

    async def run(settings: PipelineSettings, body: Callable[[Stand], Awaitable[None]]) -> None:
        async with postgres_stand(dsn, pool, settings) as stand:
            await body(stand)

    yield run
    await pool.close()


async def _latencies(stand: Stand, sessions: list[SessionId], seconds: float) -> list[float]:
    """Submit and cancel in every session at fixed times; how long each pair took from its time on, in seconds. Counted
    from when it was due, so that one that waits delays, and does not hide, those behind it."""
    taken: list[float] = []
    begun = time.monotonic()

    async def visit(session: SessionId, number: int) -> None:
        due = begun + _EVERY * number / len(sessions)
        while due < begun + seconds:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            submission = stand.submission(session)
            await stand.pipeline.execute(submission)
            cancel = commands.CancelTurn(session_id=session, key=stand.key(), turn_id=submission.turn_id)
            await stand.pipeline.execute(cancel)
            taken.append(time.monotonic() - due)
            due += _EVERY

    await asyncio.gather(*[visit(session, number) for number, session in enumerate(sessions)])
    return sorted(taken)


def _p99(taken: list[float]) -> float:
    return taken[math.ceil(len(taken) * 0.99) - 1]


@pytest.mark.alone
async def test_strangers_do_not_notice_a_held_session_for_which_a_hundred_commands_wait(
    on_stand: Callable[..., Awaitable[None]], outsider: Outsider
) -> None:
    """The p99 of other sessions stays within 1.5 times that of the same run without, plus 20 ms. Measured in up to
    three rounds: a machine's hiccup spoils one, a stranger that waits for the lock spoils all."""

    async def body(stand: Stand) -> None:
        others = [await stand.create() for _ in range(20)]
        await _latencies(stand, others, 0.3)
        rounds: list[tuple[float, float]] = []
        while not rounds or (len(rounds) < 3 and rounds[-1][1] > 1.5 * rounds[-1][0] + 0.020):
            held = await stand.create()
            without = await _latencies(stand, others, 1.2)
            await outsider.hold(held)
            waiting = [asyncio.create_task(stand.pipeline.execute(stand.submission(held))) for _ in range(100)]
            under = await _latencies(stand, others, 1.5)
            assert not any(task.done() for task in waiting)
            await outsider.release()
            await asyncio.gather(*waiting)
            assert (await stand.types(held))[1:] == ["turn.queued"] * 100
            rounds.append((_p99(without), _p99(under)))
        assert rounds[-1][1] <= 1.5 * rounds[-1][0] + 0.020, rounds

    await on_stand(PipelineSettings(lock_timeout=8.0, command_seconds=10.0), body)


async def test_waiting_commands_keep_their_order(on_stand: Callable[..., Awaitable[None]], outsider: Outsider) -> None:
    async def body(stand: Stand) -> None:
        held = await stand.create()
        await outsider.hold(held)
        sent = [stand.submission(held) for _ in range(60)]
        waiting = [asyncio.create_task(stand.pipeline.execute(command)) for command in sent[:30]]
        await asyncio.sleep(0)
        await eventually(outsider.is_waited_for, "the first ones wait for the lock")
        waiting += [asyncio.create_task(stand.pipeline.execute(command)) for command in sent[30:]]
        await asyncio.sleep(0)
        await outsider.release()
        await asyncio.gather(*waiting)
        assert [event.turn_id for event in (await stand.events(held))[1:]] == [command.turn_id for command in sent]

    await on_stand(PipelineSettings(group_size=8), body)


async def test_a_claim_is_refused_at_once_and_others_fail_after_the_lock_timeout(
    on_stand: Callable[..., Awaitable[None]], outsider: Outsider
) -> None:
    async def body(stand: Stand) -> None:
        session, worker = await stand.create(), await stand.worker()
        await stand.submit(session)
        await outsider.hold(session)
        begun = time.monotonic()
        with pytest.raises(NothingToClaim):
            await stand.pipeline.execute(ClaimTurn(session_id=session, key=stand.key(), worker_id=worker))
        assert time.monotonic() - begun < 0.25
        with pytest.raises(LockTimeout):
            await stand.submit(session)
        assert 0.5 <= time.monotonic() - begun < 1.5
        await outsider.release()

        async def claimed() -> bool:
            try:
                await stand.claim(session, worker)
            except NothingToClaim:
                return False
            return True

        await eventually(claimed, "the claim is served once nobody waits for the lock any more")
        assert (await stand.types(session)) == ["session.created", "turn.queued", "turn.started"]

    await on_stand(PipelineSettings(lock_timeout=0.5), body)


async def test_an_executor_command_waits_until_its_lease_ends(
    on_stand: Callable[..., Awaitable[None]], outsider: Outsider
) -> None:
    async def body(stand: Stand) -> None:
        session, worker = await stand.create(), await stand.worker()
        await stand.submit(session)
        claim = await stand.claim(session, worker)
        await outsider.hold(session)
        record = stand.record_of(claim, [stand.text(claim, "a")])
        task = asyncio.create_task(stand.pipeline.execute(record, deadline=time.monotonic() + 10))
        done, _ = await asyncio.wait([task], timeout=0.8)
        assert not done
        await outsider.release()
        await task
        assert (await stand.types(session))[-1] == "item.completed"
        await stand.finish(claim, ordinal=Ordinal(2))

    await on_stand(PipelineSettings(lock_timeout=0.2), body)


async def test_more_held_sessions_than_waiters_are_all_served_when_the_locks_are_free(
    on_stand: Callable[..., Awaitable[None]], outsider: Outsider
) -> None:
    async def body(stand: Stand) -> None:
        sessions = [await stand.create() for _ in range(8)]
        for session in sessions:
            await outsider.hold(session)
        waiting = [asyncio.create_task(stand.submit(session)) for session in sessions]
        done, _ = await asyncio.wait(waiting, timeout=0.3)
        assert not done
        await outsider.release()
        assert [(await task).sequence for task in waiting] == [2] * 8

    await on_stand(PipelineSettings(waiters=2), body)
