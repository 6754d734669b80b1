"""An erase: what was written is nowhere any more, numbers, digests and chain stay, and the audit is clean."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import msgspec
import pytest

from domain import commands
from domain.commands import ContinueTurn, EraseSession
from domain.errors import IdempotencyMismatch, SessionBusy
from domain.events.envelope import Draft
from domain.events.item import (
    CheckpointReached,
    ItemCompleted,
    ItemFrames,
    ToolCallData,
    ToolResultSnapshot,
    ToolStarted,
)
from domain.events.turn import InputRewritten
from domain.ids import FrameNumber, Generation, Ordinal, SessionId, TurnId
from domain.parts import Answer, Failure, FilePart, Requirement, TextPart
from domain.replies import ExecutorReply, QueuedReply, SessionReply
from infra.postgres.audit_reader import SessionIds, open_audit_reader
from infra.postgres.blobs import PostgresBlobs
from infra.postgres.feed import PostgresFeed
from infra.postgres.feed_slots import PostgresFeedSlots
from infra.postgres.pool import create_pool
from projections.audit import SessionReport
from projections.feeding import feed_projections
from projections.search.projection import Search
from projections.serving import session_projections
from services.cli.auditing import audit_range
from services.cli.main import run
from services.projector.feed_rebuild import FeedRebuild
from services.projector.generations import choose
from services.projector.session_rebuild import SessionRebuild
from tests.support.databases import Database
from tests.support.feeding import caught_up, running
from tests.support.stand import Stand, postgres_stand

MARK = "zanzibar"
FILE = hashlib.sha256(MARK.encode()).digest()


@pytest.fixture
async def admin(database: Database) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(database.dsn)
    yield connection
    await connection.close()


@pytest.fixture
async def stand(database: Database) -> AsyncIterator[Stand]:
    reads = await create_pool(await database.dsn_of("turnlog_worker"), size=2)
    async with postgres_stand(await database.dsn_of("turnlog_agent"), reads) as made:
        assert await PostgresBlobs(reads).keep(MARK.encode(), "text/plain") == FILE.hex()
        yield made
    await reads.close()


async def written(stand: Stand, mark: str) -> SessionId:
    """A session with that word wherever somebody can put one."""
    session, worker = await stand.create(), await stand.worker()
    parts = [TextPart(f"please {mark}"), FilePart(FILE.hex(), "text/plain", f"{mark}.txt", 3)]
    submission = stand.submission(session, metadata={"note": mark, "age": 41})
    await stand.pipeline.execute(msgspec.structs.replace(submission, input=parts))
    claim = await stand.claim(session, worker)
    turn_id, base, attempt = TurnId(claim.turn_id), claim.frame_base, claim.attempt
    item = stand.ids.uuid7()
    call = ToolCallData(tool_call_id="c0", name=mark, arguments={mark: 41})
    frames = ItemFrames(runs=[(base + 4, 2)], cuts=[])
    ends = {"tool_call_id": "c0", "item_id": item, "original_bytes": 8, "stored_bytes": 8}
    events = [
        stand.text(claim, f"I say {mark}", 1),
        Draft(
            ItemCompleted(
                attempt=attempt, frame=base + 5, item_id=item, kind="tool_call", tool_call=call, frames=frames
            ),
            turn_id,
        ),
        Draft(ToolStarted(attempt=attempt, frame=base + 6, tool_call_id="c0", item_id=item), turn_id),
        Draft(
            ToolResultSnapshot(attempt=attempt, frame=base + 7, revision=1, final=True, output=mark, **ends),  # type: ignore[arg-type]
            turn_id,
        ),
        Draft(
            CheckpointReached(attempt=attempt, frame=base + 8, message_index=2, reason="tool_batch"),
            turn_id,
            mark.encode(),
        ),
        Draft(InputRewritten(by="hook", input=[TextPart(mark)]), turn_id),
    ]
    await stand.record(claim, events)
    asked = [Requirement(tool_call_id="c1", kind="input", tool_name=mark, arguments={"a": mark}, fields=[mark])]
    fields = {name: getattr(stand.finish_of(claim), name) for name in ("session_id", "key", "turn_id", "fence")}
    pause = commands.PauseTurn(**fields, ordinal=Ordinal(2), attempt=1, frame=FrameNumber(base + 9), requirements=asked)
    await stand.pipeline.execute(pause)
    answer = Answer(arguments={"k": mark}, note=mark, by="ann", at="2026-01-01T00:00:00.000000Z")
    await stand.pipeline.execute(
        ContinueTurn(session_id=session, key=stand.key(), turn_id=turn_id, answers={"c1": answer})
    )
    again = await stand.claim(session, worker)
    finish = stand.finish_of(again, usage={"m": {"input_tokens": 3}}, output=mark)
    await stand.run(msgspec.structs.replace(finish, frame=FrameNumber(again.frame_base + 1)), ExecutorReply)
    await stand.submit(session, mark)
    last = await stand.claim(session, worker)
    error = Failure(code="agent_error", message=mark)
    failed = stand.finish_of(last, outcome="failed", error=error, output=None)
    await stand.run(msgspec.structs.replace(failed, frame=FrameNumber(last.frame_base + 1)), ExecutorReply)
    return session


async def holding(admin: Any, word: str) -> set[str]:
    """Tables with that word in any row, as text or as bytes."""
    found = set()
    tables = await admin.fetch(
        "SELECT schemaname || '.' || tablename AS name FROM pg_tables"
        " WHERE schemaname IN ('public', 'feed', 'feed_shadow', 'feed_previous')"
    )
    for (name,) in tables:
        query = f"SELECT count(*) FROM {name} AS t WHERE position($1 IN t::text) > 0 OR position($2 IN t::text) > 0"  # noqa: S608
        if await admin.fetchval(query, word, word.encode().hex()):
            found.add(name)
    return found


async def audited(database: Database, session: SessionId) -> SessionReport:
    async with open_audit_reader(await database.dsn_of("turnlog_projector")) as reader:
        (report,) = [report async for report in audit_range(reader, SessionIds(session, session))]
        return report


async def erase(stand: Stand, session: SessionId) -> SessionReply:
    return await stand.run(EraseSession(session_id=session, key=stand.key(), by="ann"), SessionReply)


async def test_what_was_written_is_nowhere_and_the_audit_is_clean(database: Database, stand: Stand, admin: Any) -> None:
    session, other = await written(stand, MARK), await written(stand, "borneo")
    pool = await create_pool(await database.dsn_of("turnlog_projector"), size=6)
    projections = feed_projections()
    async with running(pool, *projections):
        await caught_up(pool, *(p.name for p in projections))
    slots = PostgresFeedSlots(pool)
    # The same texts once more, in tables that were put aside.
    assert (await FeedRebuild(Search(), slots, PostgresFeed(pool), batch=100, accept=False).run()).flipped == 1
    before = await stand.events(session)
    everywhere = await holding(admin, MARK)
    assert everywhere >= {
        "public.events", "public.turns", "public.messages", "public.blob_chunks", "feed.search_texts",
        "feed.session_overview", "feed_previous.search_texts",
    }  # fmt: skip
    async with running(pool, *projections):
        reply = await erase(stand, session)
        await caught_up(pool, *(p.name for p in projections))
    assert reply.sequence == len(before) + 1
    assert await holding(admin, MARK) - {"public.blob_chunks"} == set()
    after = await stand.events(session)
    assert [(e.sequence, e.type, e.hash, e.payload_digest, e.private_digest) for e in after[:-1]] == [
        (e.sequence, e.type, e.hash, e.payload_digest, e.private_digest) for e in before
    ]
    assert {(e.salt, e.private) for e in after[:-1]} == {(None, None)}
    report = await audited(database, session)
    assert (report.findings, report.erased_to, report.judged_to) == ([], len(before), len(after))
    assert (await audited(database, other)).erased_to == 0
    assert "public.messages" in await holding(admin, "borneo")
    # The file is named by the other session as well, and not even a superuser takes it away; with that erased it goes.
    assert await admin.fetchval("SELECT count(*) FROM blobs") == 1
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await admin.execute("DELETE FROM blobs")
    await erase(stand, other)
    assert await admin.fetchval("SELECT count(*) FROM blobs") == 0
    assert await holding(admin, MARK) == set()
    await pool.close()


async def test_after_it_the_session_goes_on_and_is_rebuilt_as_it_is(database: Database, stand: Stand) -> None:
    session = await written(stand, MARK)
    key = stand.submission(session).key
    await stand.run(stand.submission(session, "x", key=key), QueuedReply)
    waiting = await stand.claim(session, await stand.worker())
    with pytest.raises(SessionBusy):
        await erase(stand, session)
    finish = stand.finish_of(waiting)
    await stand.run(msgspec.structs.replace(finish, frame=FrameNumber(waiting.frame_base + 1)), ExecutorReply)
    await erase(stand, session)
    with pytest.raises(IdempotencyMismatch):
        await stand.run(stand.submission(session, "x", key=key), QueuedReply)
    await stand.submit(session, "a new beginning")
    await erase_is_refused(stand, session)
    pool = await create_pool(await database.dsn_of("turnlog_worker"), size=3)
    for projection in session_projections():
        target = await choose(pool, session_projections(), projection.name, rollback=False)
        report = await SessionRebuild(pool, projection, target, accept=False).run()
        assert (report.flipped, report.differences) == (1, [])
    assert (await audited(database, session)).findings == []
    rows = await pool.fetch("SELECT DISTINCT generation FROM messages WHERE session_id = $1 AND ordinal = 0", session)
    assert [Generation(row["generation"]) for row in rows] == [1, 2]
    await pool.close()


async def erase_is_refused(stand: Stand, session: SessionId) -> None:
    with pytest.raises(SessionBusy):
        await erase(stand, session)


async def test_the_command(
    database: Database, stand: Stand, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session = await written(stand, MARK)
    for role in ("agent", "projector"):
        monkeypatch.setenv(f"TURNLOG_POSTGRES_{role.upper()}", await database.dsn_of(f"turnlog_{role}"))
    last = len(await stand.events(session))
    code = await asyncio.to_thread(run, ["erase", session])
    out, _ = capsys.readouterr()
    assert (code, out) == (0, f"erased up to sequence {last}; session.erased is {last + 1}\n")
    code = await asyncio.to_thread(run, ["audit", "--session", session])
    assert (code, "1 of them erased in part" in capsys.readouterr().out) == (0, True)
    assert await asyncio.to_thread(run, ["erase", stand.ids.uuid7()]) == 2
