"""A host whose clock is hours wrong fails no turn and stamps no wrong time: the database's clock is everybody's."""

from collections.abc import AsyncGenerator
from typing import Any

import asyncpg
import pytest

from domain import commands
from domain.clock import parse_rfc3339
from domain.errors import NothingToClaim, RequirementExpired
from domain.events.turn import TurnAnswered, TurnPaused
from domain.ids import Fence, Micros, Ordinal, TurnId
from domain.parts import Answer, Requirement
from infra.postgres.history import PostgresHistory
from infra.postgres.pool import create_pool
from infra.postgres.workers import Held, PostgresWorkers
from infra.system import SystemClock, SystemIds
from services.worker.executor.bounds import Bounds
from services.worker.executor.executor import Executor, Tools
from services.worker.runtimes.callable import CallableRuntime
from tests.support import stand as stands
from tests.support.collector import Shown, SteadyLease
from tests.support.databases import Database
from tests.support.stand import Stand, postgres_stand
from turnlog import Pause, Turn

TWO_HOURS = 2 * 3600 * 1_000_000
SECOND = 1_000_000


class WrongClock(SystemClock):
    """A host's clock that is off by so many microseconds."""

    off = 0

    def now(self) -> Micros:
        return Micros(super().now() + self.off)


async def asks(turn: Turn) -> AsyncGenerator[Any, Any]:
    """Wants to be allowed, then is done."""
    yield "well "
    answers = yield Pause(requirements=[Requirement(tool_call_id="c1", kind="approval", tool_name="send")])
    yield f"allowed: {answers['c1'].approved}"


@pytest.mark.parametrize("off", [-TWO_HOURS, TWO_HOURS], ids=["slow", "fast"])
async def test_a_worker_host_whose_clock_is_two_hours_wrong(
    database: Database, monkeypatch: pytest.MonkeyPatch, off: int
) -> None:
    """Submitted at a right host, executed at a wrong one, looked after by a right one: nothing is overdue for anybody,
    and all that is written is of the database's time."""
    monkeypatch.setattr(WrongClock, "off", off)
    dsn = await database.dsn_of("turnlog_worker")
    pool = await create_pool(dsn, size=3)
    async with postgres_stand(dsn, pool) as right:
        monkeypatch.setattr(stands, "SystemClock", WrongClock)
        async with stands.open_pipeline(dsn) as pipeline:
            wrong = Stand(pipeline, right.store, right.feed, right.leases, right.notifier, right.ids)
            session, worker, other = await right.create(), await right.worker(), await right.worker()
            workers = PostgresWorkers(pool, 30.0, turn_seconds=600.0, silent_seconds=600.0)
            await right.submit(session)
            before = await _now(database)
            claim = await wrong.claim(session, worker)
            await workers.heartbeat(worker, [Held(session, TurnId(claim.turn_id), Fence(claim.fence), 0.0)])
            assert await workers.claimable(10) == []
            with pytest.raises(NothingToClaim):
                await right.claim(session, other)
            tools = Tools(
                pipeline=pipeline,
                turn_log=PostgresHistory(pool),
                notifier=Shown(),
                lease=SteadyLease(),
                clock=WrongClock(),
                ids=SystemIds(),
                bounds=Bounds(requirement_seconds=600.0),
            )
            await Executor(claim, CallableRuntime(asks), tools, lambda: None).run()
            assert await workers.claimable(10) == [], "the question has not expired"
            answers = {"c1": Answer(approved=True, by="ann")}
            await wrong.pipeline.execute(
                commands.ContinueTurn(
                    session_id=session, key=right.key(), turn_id=TurnId(claim.turn_id), answers=answers
                )
            )
            again = await right.claim(session, other)
            assert again.reason == "continued"
            await Executor(again, CallableRuntime(asks), tools, lambda: None).run()
            after = await _now(database)
        events = await right.events(session)
        assert events[-1].type == "turn.completed"
        started = next(event for event in events if event.type == "turn.started")
        assert all(before <= event.created_at <= after for event in events[started.sequence - 1 :])
        (paused,) = [event.event() for event in events if event.type == "turn.paused"]
        assert isinstance(paused, TurnPaused)
        expires = parse_rfc3339(paused.requirements[0].expires_at or "")
        assert before + 600 * SECOND <= expires <= after + 600 * SECOND
        (answered,) = [event.event() for event in events if event.type == "turn.answered"]
        assert isinstance(answered, TurnAnswered)
        assert before <= parse_rfc3339(answered.answer.at) <= after
    await pool.close()


async def test_times_never_go_back_behind_a_standby_that_was_ahead(database: Database) -> None:
    dsn = await database.dsn_of("turnlog_worker")
    pool = await create_pool(dsn, size=2)
    async with postgres_stand(dsn, pool) as stand:
        session = await stand.create()
        connection = await asyncpg.connect(database.dsn)
        await connection.execute("UPDATE sessions SET last_event_at = last_event_at + interval '1 hour'")
        await connection.close()
        await stand.submit(session)
        await stand.submit(session)
        born, *later = [event.created_at for event in await stand.events(session)]
        assert later == [born + 3600 * SECOND] * 2
    await pool.close()


async def test_what_has_expired_on_the_databases_clock_is_expired_for_all(database: Database) -> None:
    """Beside the tests above, so that they cannot pass because nothing ever expires."""
    dsn = await database.dsn_of("turnlog_worker")
    pool = await create_pool(dsn, size=2)
    async with postgres_stand(dsn, pool) as stand:
        session, worker = await stand.create(), await stand.worker()
        await stand.submit(session)
        claim = await stand.claim(session, worker)
        asked = Requirement(tool_call_id="c1", kind="approval", tool_name="send")
        pause = commands.PauseTurn(
            **stand._executor(claim), ordinal=Ordinal(1), attempt=1, frame=claim.frame_base + 1, requirements=[asked],
            expires_in=0.000001,
        )  # fmt: skip
        await stand.pipeline.execute(pause)
        command = commands.ContinueTurn(
            session_id=session,
            key=stand.key(),
            turn_id=TurnId(claim.turn_id),
            answers={"c1": Answer(approved=True)},
        )
        with pytest.raises(RequirementExpired):
            await stand.pipeline.execute(command)
        found = await PostgresWorkers(pool, 30.0).claimable(10)
        assert [startable.session_id for startable in found] == [session]
    await pool.close()


async def _now(database: Database) -> int:
    connection = await asyncpg.connect(database.dsn)
    now: int = await connection.fetchval("SELECT (extract(EPOCH FROM clock_timestamp()) * 1000000)::bigint")
    await connection.close()
    return now
