"""Rebuilds while writes go on, sessions are born, and the rebuild itself is killed at random."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import msgspec
import pytest

from domain.errors import NothingToClaim, VersionMismatch
from domain.events.envelope import Draft
from domain.events.item import UsageRecorded
from domain.ids import FrameNumber, SessionId, TurnId
from domain.ports import FeedEvent, SessionChange, Transaction
from domain.replies import ClaimedTurn, ExecutorReply
from infra.pipeline.notices import version_notices
from infra.postgres.audit_reader import open_audit_reader
from infra.postgres.feed import PostgresFeed
from infra.postgres.feed_slots import PostgresFeedSlots
from infra.postgres.pool import Pool, create_pool
from projections.messages.projection import Messages
from projections.refolding import COLUMNS
from projections.serving import session_projections
from projections.turns.projection import Turns
from projections.usage.projection import Usage
from services.cli.auditing import audit_range
from services.cli.main import run
from services.projector.feed_rebuild import FeedRebuild
from services.projector.generations import choose
from services.projector.rebuild_report import RebuildRefused
from services.projector.session_rebuild import SessionRebuild
from tests.support.commands import TURNLOG, environment, turnlog
from tests.support.databases import Database
from tests.support.feeding import caught_up, running
from tests.support.planted import copies, put
from tests.support.stand import Stand, postgres_stand
from tests.support.story import story
from tests.support.waiting import eventually


@dataclass
class World:
    """A database with planted sessions, and people who write."""

    database: Database
    stand: Stand
    worker: Pool
    projector: Pool
    admin: Any
    env: dict[str, Any]

    async def served(self, name: str) -> set[int]:
        rows = await self.admin.fetch(f"SELECT DISTINCT {name}_generation AS g FROM sessions")  # noqa: S608
        return {row["g"] for row in rows}

    async def audited(self) -> int:
        """Sessions, all of them clean."""
        count = 0
        async with open_audit_reader(await self.database.dsn_of("turnlog_projector")) as reader:
            for ids in await reader.ranges(10_000):
                async for report in audit_range(reader, ids):
                    assert report.findings == []
                    count += 1
        return count


@pytest.fixture
async def world(database: Database) -> AsyncIterator[World]:
    admin = await asyncpg.connect(database.dsn)
    dsns = {role: await database.dsn_of(f"turnlog_{role}") for role in ("worker", "projector")}
    worker, projector = await create_pool(dsns["worker"], size=6), await create_pool(dsns["projector"], size=6)
    env = {f"TURNLOG_POSTGRES_{role.upper()}": dsn for role, dsn in dsns.items()}
    async with postgres_stand(dsns["worker"], worker) as stand:
        yield World(database, stand, worker, projector, admin, env)
    await worker.close()
    await projector.close()
    await admin.close()


async def one_turn(stand: Stand, session: SessionId) -> None:
    worker = await stand.worker()
    await stand.submit(session, "more")

    async def claimed() -> ClaimedTurn | None:
        # A claim does not wait for a session that is being flipped: workers look again.
        with contextlib.suppress(NothingToClaim):
            return await stand.claim(session, worker)
        return None

    claim = await eventually(claimed, "the turn is claimed")
    used = UsageRecorded(attempt=1, frame=claim.frame_base + 4, model="m", input_tokens=3, output_tokens=1)
    await stand.record(claim, [stand.text(claim, "said"), Draft(used, TurnId(claim.turn_id))])
    finish = stand.finish_of(claim, ordinal=2)
    await stand.run(msgspec.structs.replace(finish, frame=FrameNumber(claim.frame_base + 5)), ExecutorReply)


@asynccontextmanager
async def load(stand: Stand, sessions: int) -> AsyncIterator[list[SessionId]]:
    """That many sessions are written to, one turn after the other; new ones are born all the time."""
    known = [await stand.create() for _ in range(sessions)]

    async def write(session: SessionId) -> None:
        while True:
            await one_turn(stand, session)
            await asyncio.sleep(0.05)  # people type slower than this machine can write

    async def give_birth() -> None:
        while True:
            known.append(await stand.create())
            await one_turn(stand, known[-1])
            await asyncio.sleep(0.2)

    tasks = [asyncio.create_task(work) for work in (give_birth(), *(write(s) for s in list(known)))]
    try:
        yield known
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def killed(world: World, when: Any, *words: str) -> None:
    """Run the command and kill it (-9) once `when` is true; it may have ended before."""
    process = await asyncio.create_subprocess_exec(str(TURNLOG), *words, env=environment(**world.env))
    try:

        async def now() -> bool:
            return process.returncode is not None or await when()

        await eventually(now, "the rebuild is on its way", pause=0.005)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def rebuilt_under_load(
    world: World, *, planted: int, sessions: int, kills: tuple[int, int], parallel: int
) -> None:
    dice = random.Random(5)
    await put(world.admin, copies(story(), planted))

    async def flipped() -> int:
        return int(await world.admin.fetchval("SELECT count(*) FROM sessions WHERE messages_generation = 2"))

    async def applied() -> int:
        rows = await world.admin.fetch("SELECT position FROM feed_projections WHERE slot = 'shadow' AND name = 'usage'")
        return int(rows[0]["position"]) if rows else 0

    async with load(world.stand, sessions) as known, running(world.projector, Usage(), batch=200):
        for kill in range(kills[0]):
            goal = int(planted * (kill + dice.random()) / (kills[0] + 1)) + 1

            async def far(goal: int = goal) -> bool:
                return await flipped() >= goal

            await killed(world, far, "rebuild", "messages")
        code, out, err = await turnlog("rebuild", "messages", "--parallel", str(parallel), timeout=600, **world.env)
        assert (code, "0 refused" in out) == (0, True), out + err
        # A kill that came too late has let its rebuild end: then it was another one that went on.
        assert len(await world.served("messages")) == 1
        events = await world.admin.fetchval("SELECT count(*) FROM events")
        for kill in range(kills[1]):
            goal = int(events * (kill + dice.random()) / (kills[1] + 1)) + 1

            async def far_on(goal: int = goal) -> bool:
                return await applied() >= goal

            await killed(world, far_on, "rebuild", "usage")
        code, out, err = await turnlog("rebuild", "usage", timeout=600, **world.env)
        assert (code, "0 refused" in out) == (0, True), out + err
        born = len(known) - sessions
        assert born > 0
    async with running(world.projector, Usage()):
        await caught_up(world.projector, "usage")
    # The load may have been stopped between a session's birth and its note of it.
    there = await world.admin.fetchval("SELECT count(*) FROM sessions")
    assert planted + len(known) <= there <= planted + len(known) + sessions
    assert await world.audited() == there
    used = await world.admin.fetchrow(
        "SELECT sum(requests)::int AS n, sum(input_tokens)::int AS i FROM feed.usage_tokens"
    )
    recorded = await world.admin.fetchval("SELECT count(*)::int FROM events WHERE type = 'usage.recorded'")
    assert (used["n"], used["i"]) == (recorded, 3 * recorded)


async def test_rebuilds_of_messages_and_usage_under_load_killed_three_times(world: World) -> None:
    await rebuilt_under_load(world, planted=120, sessions=4, kills=(2, 1), parallel=1)


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_rebuilds_of_messages_and_usage_under_load_killed_ten_times(world: World) -> None:
    await rebuilt_under_load(world, planted=3000, sessions=50, kills=(10, 10), parallel=2)


async def typed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The command in this process."""
    code = await asyncio.to_thread(run, list(words))
    return code, capsys.readouterr().out


@pytest.mark.parametrize("name", ["turns", "messages"])
async def test_what_differs_is_named_and_not_served_unless_accepted(
    world: World, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable, dsn in world.env.items():
        monkeypatch.setenv(variable, dsn)
    await put(world.admin, copies(story(), 4))
    damage = {"turns": "output = 'x' WHERE enqueue_sequence = 4", "messages": "parts = '[]' WHERE ordinal = 1"}[name]
    bad = [row["session_id"] for row in await world.admin.fetch("SELECT session_id FROM sessions ORDER BY 1")][1]
    await world.admin.execute(f"UPDATE {name} SET {damage} AND session_id = '{bad}' AND generation = 1")  # noqa: S608
    await world.admin.execute(f"DELETE FROM {name} WHERE session_id = '{bad}' AND enqueue_sequence = 5")  # noqa: S608
    code, out = await typed(capsys, "rebuild", name)
    assert code == 1
    assert f"{name}: 3 served from new rows, 1 refused" in out
    column = {"turns": "output", "messages": "parts"}[name]
    assert f"differs from what is served: {column}" in out
    assert "differs from what is served: there is no such row" in out
    assert all(str(bad) in line for line in out.splitlines() if "differs" in line)
    assert await world.served(name) == {1, 2}
    code, out = await typed(capsys, "rebuild", name, "--accept")
    assert (code, await world.served(name)) == (0, {2})
    assert await world.audited() == 4
    code, out = await typed(capsys, "rebuild", name, "--rollback")
    assert (code, await world.served(name)) == (0, {3})
    assert await world.audited() == 4


OTHERWISE = {
    "text": "coalesce({0}, '') || 'x'",
    "json": "'{{\"other\":1}}'",
    "uuid": "gen_random_uuid()",
    "boolean": "NOT {0}",
    "timestamp with time zone": "coalesce({0}, now()) + interval '1 microsecond'",
    "integer": "coalesce({0}, 0) + 1000",
    "bigint": "coalesce({0}, 0) + 1000",
}
STATUS = {"turns": "'failed'", "messages": "'partial'", "role": "'assistant'"}


@pytest.mark.parametrize("name", ["turns", "messages"])
async def test_a_served_row_that_differs_in_any_column_is_named_with_it(world: World, name: str) -> None:
    """One session a column; the server compares, so that each column must be in its comparison."""
    columns = COLUMNS[name][1:]
    await put(world.admin, copies(story(), len(columns) + 1))
    sessions = await world.admin.fetch("SELECT session_id::text AS id FROM sessions ORDER BY 1")
    types = await world.admin.fetch(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = $1", name
    )
    kinds = {row["column_name"]: row["data_type"] for row in types}
    due = {}
    for column, session in zip(columns, sessions, strict=False):
        value = OTHERWISE[kinds[column]].format(column)
        value = {"status": STATUS[name], "role": STATUS["role"]}.get(column, value)
        # A row that is over, and not the newest, so that no other rule of the table is in the way.
        status = await world.admin.execute(
            f"UPDATE {name} SET {column} = {value}"  # noqa: S608
            f" WHERE session_id = '{session['id']}' AND enqueue_sequence = 1"
            + (" AND ordinal = 0" if name == "messages" else "")
        )
        assert status == "UPDATE 1"
        due[session["id"]] = column
    target = await choose(world.worker, session_projections(), name, rollback=False)
    (projection,) = [one for one in session_projections() if one.name == name]
    report = await SessionRebuild(world.worker, projection, target, accept=False).run()
    named = {found.session_id: found.columns for found in report.differences}
    # A row that claims to be newer than the log is not compared; then it is missing.
    due |= {session: "there is no such row" for session, column in due.items() if column == "last_sequence"}
    assert named == due
    assert {found.against for found in report.differences} == {"served"}
    assert (report.flipped, report.refused) == (1, len(columns))


class NewMessages(Messages):
    """A release to come: what agents say is shouted."""

    version = 2

    async def apply(self, changes: Sequence[SessionChange], tx: Transaction) -> None:
        await super().apply(changes, tx)


async def test_a_new_version_is_noticed_built_beside_and_rolled_back(world: World) -> None:
    sessions = [await world.stand.create() for _ in range(3)]
    for session in sessions:
        await one_turn(world.stand, session)
    release = (Turns(), Messages(), NewMessages())
    assert await version_notices(world.worker, session_projections()) == []
    assert await version_notices(world.worker, release) == [
        "messages has version 1 and this release 2: run: turnlog rebuild messages"
    ]
    target = await choose(world.worker, release, "messages", rollback=False)
    assert (target.generation, target.version) == (2, 2)
    # The old release goes on with the sessions that it can write, and creates none.
    await one_turn(world.stand, sessions[0])
    with pytest.raises(VersionMismatch):
        await world.stand.create()
    report = await SessionRebuild(world.worker, NewMessages(), target, accept=False).run()
    assert (report.flipped, report.differences) == (3, [])
    with pytest.raises(VersionMismatch):
        await world.stand.submit(sessions[0])
    assert (await version_notices(world.worker, session_projections()))[0].endswith("upgrade this process")
    with pytest.raises(RebuildRefused):
        await choose(world.worker, session_projections(), "messages", rollback=False)
    back = await choose(world.worker, release, "messages", rollback=True)
    assert (back.generation, back.version) == (3, 1)
    assert (await SessionRebuild(world.worker, Messages(), back, accept=False).run()).flipped == 3
    await one_turn(world.stand, sessions[0])
    await one_turn(world.stand, await world.stand.create())
    assert await world.audited() == 4


class OtherUsage(Usage):
    """The next version: everything counts double."""

    version = 2

    async def apply(self, events: Sequence[FeedEvent], tx: Transaction) -> None:
        await super().apply(events, tx)
        await super().apply([event for event in events if event.type == "usage.recorded"], tx)


async def tokens(world: World) -> int:
    return int(await world.admin.fetchval("SELECT coalesce(sum(input_tokens), 0)::int FROM feed.usage_tokens"))


async def test_a_feed_projection_is_swapped_and_goes_back_after_catching_up(world: World) -> None:
    slots, feed = PostgresFeedSlots(world.projector), PostgresFeed(world.projector)
    session = await world.stand.create()
    await one_turn(world.stand, session)
    async with running(world.projector, Usage()):
        await caught_up(world.projector, "usage")
    await one_turn(world.stand, session)
    newer = FeedRebuild(OtherUsage(), slots, feed, batch=2, accept=False)
    assert (await newer.run()).flipped == 1
    assert await tokens(world) == 12
    async with running(world.projector, OtherUsage()):
        await one_turn(world.stand, session)
        await caught_up(world.projector, "usage")
        assert await tokens(world) == 18
    with pytest.raises(RebuildRefused):
        await newer.back()
    older = FeedRebuild(Usage(), slots, feed, batch=2, accept=False)
    assert (await older.back()).flipped == 1
    assert await tokens(world) == 9
    async with running(world.projector, Usage()):
        await one_turn(world.stand, session)
        await caught_up(world.projector, "usage")
    assert await tokens(world) == 12


async def test_differences_of_a_feed_projection_keep_the_old_tables(world: World) -> None:
    slots, feed = PostgresFeedSlots(world.projector), PostgresFeed(world.projector)
    session = await world.stand.create()
    await one_turn(world.stand, session)
    async with running(world.projector, Usage()):
        await caught_up(world.projector, "usage")
    await world.admin.execute("UPDATE feed.usage_tokens SET input_tokens = 1000")
    report = await FeedRebuild(Usage(), slots, feed, batch=10, accept=False).run()
    assert (report.flipped, report.refused) == (0, 1)
    assert [(d.session_id, d.row, d.columns) for d in report.differences] == [(session, "usage_tokens", "2 rows")]
    assert await tokens(world) == 1000
    assert (await FeedRebuild(Usage(), slots, feed, batch=10, accept=True).run()).flipped == 1
    assert await tokens(world) == 3


class Poisoned(Usage):
    async def apply(self, events: Sequence[FeedEvent], tx: Transaction) -> None:
        raise ZeroDivisionError("a user's words")


async def test_an_event_that_cannot_be_applied_fails_a_rebuild(world: World) -> None:
    slots, feed = PostgresFeedSlots(world.projector), PostgresFeed(world.projector)
    session = await world.stand.create()
    with pytest.raises(RebuildRefused, match=f"usage failed between {session} 1 and .*: ZeroDivisionError"):
        await FeedRebuild(Poisoned(), slots, feed, batch=10, accept=False).run()


async def generations(world: World, name: str) -> set[int]:
    return {row["g"] for row in await world.admin.fetch(f"SELECT DISTINCT generation AS g FROM {name}")}  # noqa: S608


@pytest.mark.parametrize("name", ["turns", "messages"])
async def test_forgotten_generations_are_gone_and_so_is_the_way_back(
    world: World, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable, dsn in world.env.items():
        monkeypatch.setenv(variable, dsn)
    await put(world.admin, copies(story(), 3))
    rows = await world.admin.fetchval(f"SELECT count(*) FROM {name}")  # noqa: S608
    bad = await world.admin.fetchval("SELECT session_id FROM sessions ORDER BY 1 LIMIT 1")
    damage = {"turns": "attempt = 9", "messages": "ordinal = 99"}[name]
    await world.admin.execute(  # of one row, so that this session stays where it is
        f"UPDATE {name} SET {damage} WHERE ctid = (SELECT min(ctid) FROM {name} WHERE session_id = '{bad}')"  # noqa: S608
    )
    assert (await typed(capsys, "rebuild", name))[0] == 1
    assert await generations(world, name) == {1, 2}
    # What a session is served from stays, whatever generation that is.
    code, out = await typed(capsys, "projections", "forget", name)
    assert (code, out) == (
        0,
        f"{name}: {rows} rows of older generations removed; 1 sessions are still served from older ones\n",
    )
    assert await world.served(name) == await generations(world, name) == {1, 2}
    assert (await typed(capsys, "rebuild", name, "--accept"))[0] == 0
    code, out = await typed(capsys, "projections", "forget", name)
    assert (code, out) == (0, f"{name}: {rows // 3} rows of older generations removed\n")
    assert await generations(world, name) == {2}
    assert await world.audited() == 3
    code, said = await asyncio.to_thread(run, ["rebuild", name, "--rollback"]), capsys.readouterr()
    assert code == 2
    assert f"{name} has no generation before the newest one (any more): there is nothing to go back to" in said.err
    # The next rebuild is one like any other, and there is a way back from it again.
    assert (await typed(capsys, "rebuild", name))[0] == 0
    assert (await typed(capsys, "rebuild", name, "--rollback"))[0] == 0
    assert await world.served(name) == {4}
    await one_turn(world.stand, await world.stand.create())
    assert await world.audited() == 4


async def test_forgotten_tables_of_a_feed_projection_are_gone_and_so_is_the_way_back(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable, dsn in world.env.items():
        monkeypatch.setenv(variable, dsn)
    await one_turn(world.stand, await world.stand.create())
    async with running(world.projector, Usage()):
        await caught_up(world.projector, "usage")
    assert (await typed(capsys, "rebuild", "usage"))[0] == 0
    assert await world.admin.fetchval("SELECT to_regclass('feed_previous.usage_tokens') IS NOT NULL")
    assert await typed(capsys, "projections", "forget", "usage") == (0, "usage: previous tables removed\n")
    assert await typed(capsys, "projections", "forget", "usage") == (0, "usage: there were no previous tables\n")
    assert not await world.admin.fetchval("SELECT to_regclass('feed_previous.usage_tokens') IS NOT NULL")
    code, said = await asyncio.to_thread(run, ["rebuild", "usage", "--rollback"]), capsys.readouterr()
    assert code == 2
    assert "usage has no previous tables: there is nothing to go back to" in said.err
    assert await tokens(world) == 3
