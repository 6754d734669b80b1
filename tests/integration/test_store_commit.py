"""The connection is lost exactly at COMMIT: nothing accepted is lost, nothing is doubled, every caller gets an
answer."""

import asyncio
import time
from collections.abc import Sequence

import msgspec
import pytest

from domain import replies
from domain.errors import InternalFault, StoreUnavailable
from domain.ids import CommandKey, Ordinal, SessionId
from domain.ports import Outcome, SessionChange, Transaction
from infra.pipeline.settings import PipelineSettings
from infra.postgres.pool import create_pool
from projections.messages.projection import Messages
from projections.turns.projection import Turns
from tests.support.databases import Database
from tests.support.proxy import Cut, cutting_proxy
from tests.support.stand import postgres_stand

pytestmark = pytest.mark.every_postgres


class Breaking(Messages):
    """A read model with a fault: it cannot take the events of one session."""

    broken: SessionId | None = None

    async def apply(self, changes: Sequence[SessionChange], tx: Transaction) -> None:
        if any(change.session_id == self.broken for change in changes):
            raise LookupError("something that nobody thought of")
        await super().apply(changes, tx)


async def test_a_fault_of_ours_ends_the_command_that_meets_it_and_nothing_else(database: Database) -> None:
    """Its caller tries it again at every other process: were it to end a process, it would end them all."""
    dsn = await database.dsn_of("turnlog_worker")
    pool = await create_pool(dsn, size=2)
    breaking = Breaking()
    async with postgres_stand(dsn, pool, PipelineSettings(lanes=1), (Turns(), breaking)) as stand:
        good, bad = await stand.create(), await stand.create()
        breaking.broken = bad
        sent = [stand.submission(session) for session in (good, bad, good)]
        answers = await asyncio.gather(*map(stand.pipeline.execute, sent), return_exceptions=True)
        assert [type(answer) for answer in answers] == [Outcome, InternalFault, Outcome]
        assert await stand.types(bad) == ["session.created"]
        breaking.broken = None
        await stand.pipeline.execute(sent[1])
        assert await stand.types(bad) == ["session.created", "turn.queued"]
        assert await stand.types(good) == ["session.created", "turn.queued", "turn.queued"]
    await pool.close()


@pytest.mark.parametrize("mode", ["before", "after"])
async def test_e03_c08_a_cut_at_commit_is_settled_by_the_key(database: Database, mode: Cut) -> None:
    """aegra#501: the row was committed and its queue submit lost. Here input, turn and event are one transaction, and
    the repeat finds the first reply."""
    dsn = await database.dsn_of("turnlog_worker")
    pool = await create_pool(dsn, size=2)
    async with cutting_proxy(dsn) as (proxy, through), postgres_stand(through, pool) as stand:
        session, worker = await stand.create(), await stand.worker()
        proxy.arm(mode, 3)
        commands = [stand.submission(session, str(n), key=CommandKey(str(n))) for n in range(10)]
        outcomes = await asyncio.gather(*map(stand.pipeline.execute, commands))
        assert proxy.cut == 3
        answers = [msgspec.json.decode(outcome.reply, type=replies.QueuedReply) for outcome in outcomes]
        assert [answer.turn_id for answer in answers] == [command.turn_id for command in commands]
        assert [answer.enqueue_sequence for answer in answers] == list(range(1, 11))
        proxy.arm(mode, 1)
        claim = await stand.claim(session, worker)
        proxy.arm(mode, 1)
        await stand.record(claim, [stand.text(claim, "a")])
        proxy.arm(mode, 1)
        following = (await stand.finish(claim, ordinal=Ordinal(2), claim_next=worker)).next
        assert following is not None
        assert following.turn_id == commands[1].turn_id
        assert proxy.cut == 6
        assert (await stand.types(session))[11:] == [
            "turn.started",
            "item.completed",
            "turn.completed",
            "turn.started",
        ]
        counted = await pool.fetchrow(
            "SELECT (SELECT count(*) FROM turns), (SELECT count(*) FROM command_log WHERE idempotency_key LIKE 'key:%')"
        )
        assert counted is not None
        assert tuple(counted) == (10, 11)
    await pool.close()


async def test_a_store_that_stays_away_is_unavailable_at_the_deadline(database: Database) -> None:
    dsn = await database.dsn_of("turnlog_worker")
    pool = await create_pool(dsn, size=2)
    settings = PipelineSettings(command_seconds=0.5)
    async with cutting_proxy(dsn) as (proxy, through), postgres_stand(through, pool, settings) as stand:
        session = await stand.create()
        proxy.arm("before", 1000)
        many = [stand.submission(session) for _ in range(20)]
        async with asyncio.timeout(3):
            answers = await asyncio.gather(*map(stand.pipeline.execute, many), return_exceptions=True)
        assert {type(answer) for answer in answers} == {StoreUnavailable}
        proxy.arm("before", 0)
        # The one that was on its way when its caller gave up may have got through: the repeat with its key tells.
        for command in many:
            await stand.pipeline.execute(command, deadline=time.monotonic() + 10)
        queued = [event.turn_id for event in (await stand.events(session))[1:]]
        assert sorted(map(str, queued)) == sorted(command.turn_id for command in many)
    await pool.close()


async def test_a_full_lane_refuses_at_once(database: Database) -> None:
    dsn = await database.dsn_of("turnlog_worker")
    pool = await create_pool(dsn, size=2)
    settings = PipelineSettings(lanes=1, lane_queue=10)
    async with postgres_stand(dsn, pool, settings) as stand:
        session = await stand.create()
        many = [stand.submission(session) for _ in range(30)]
        answers = await asyncio.gather(*map(stand.pipeline.execute, many), return_exceptions=True)
        refused = [type(answer) for answer in answers if isinstance(answer, Exception)]
        assert refused == [StoreUnavailable] * 20
    await pool.close()
