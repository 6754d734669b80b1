"""A read model rebuilt from event zero has byte for byte the same rows, columns of every type included."""

import hashlib
from typing import Any, cast

import asyncpg
import pytest

from domain import commands
from domain.commands import ContinueTurn
from domain.errors import VersionMismatch
from domain.events.envelope import Draft
from domain.events.item import CheckpointReached, ItemSuperseded, ToolResultSnapshot
from domain.events.turn import InputRewritten
from domain.ids import Generation, Ordinal, SessionId, TurnId
from domain.parts import Answer, Failure, FilePart, Requirement, TextPart
from domain.ports import AppliedEvent, SessionChange, Transaction
from domain.session import SessionState, evolve
from domain.turn import Turn
from infra.postgres.blobs import PostgresBlobs
from infra.postgres.pool import create_pool, prepare
from infra.postgres.read_models import PostgresReadModels
from infra.postgres.rows import event_of
from infra.postgres.sql import statements
from projections.serving import session_projections
from tests.support.databases import Database
from tests.support.stand import Stand, open_pipeline, postgres_stand

pytestmark = pytest.mark.every_postgres

FILE = hashlib.sha256(b"abc").hexdigest()


async def _live(stand: Stand) -> SessionId:
    """A session in which everything happens that a read model shows."""
    session, worker = await stand.create(), await stand.worker()
    await stand.submit(session, "ünïcode \U0001f600", external_id="mine", metadata={"z": 1, "a": [None, 1.5]})
    claim = await stand.claim(session, worker)
    turn_id = TurnId(claim.turn_id)
    message, first, more, extra = (stand.ids.uuid7() for _ in range(4))
    base: dict[str, Any] = {"attempt": claim.attempt}
    rewritten = InputRewritten(by="hook", input=[TextPart("other"), FilePart(FILE, "text/plain", "n", 3)])
    events = [
        Draft(rewritten, turn_id),
        stand.text(claim, "first ", 1, message_id=message, item_id=first),
        stand.text(claim, "half \U0001f680", 4, message_id=message, item_id=more, continues=first),
        Draft(CheckpointReached(**base, frame=claim.frame_base + 7, message_index=2, reason="tool_batch"), turn_id),
        stand.text(claim, "to be gone", 8, message_id=message, item_id=extra),
        stand.text(claim, "gone as a whole", 11, item_id=(alone := stand.ids.uuid7())),
        stand.text(claim, "thought", 14, kind="reasoning", message_id=None),
    ]
    await stand.record(claim, events)
    later = [
        Draft(ItemSuperseded(attempt=1, item_ids=[extra, alone]), turn_id),
        stand.text(claim, "cut", 18, partial=True),
        Draft(
            ToolResultSnapshot(
                **base,
                frame=claim.frame_base + 21,
                tool_call_id="c",
                item_id=first,
                revision=1,
                final=True,
                output="x",
                original_bytes=1,
                stored_bytes=1,
            ),
            turn_id,
        ),
    ]
    await stand.record(claim, later, 2)
    asked = [Requirement(tool_call_id="c1", kind="input", tool_name="t", arguments={"é": [1]}, expires_at=None)]
    fields = {name: getattr(stand.finish_of(claim), name) for name in ("session_id", "key", "turn_id", "fence")}
    pause = commands.PauseTurn(**fields, ordinal=Ordinal(3), attempt=1, frame=claim.frame_base + 22, requirements=asked)
    await stand.pipeline.execute(pause)
    answer = Answer(arguments={"k": 2.25, "b": True}, note="ok", by="ann", at="2026-01-01T00:00:00.000000Z")
    await stand.pipeline.execute(
        ContinueTurn(session_id=session, key=stand.key(), turn_id=turn_id, answers={"c1": answer})
    )
    again = await stand.claim(session, worker)
    await stand.finish(again, ordinal=Ordinal(1), usage={"m": {"input_tokens": 3}}, output="first half")
    for outcome in ("failed", "completed"):
        await stand.submit(session, outcome)
        failing = await stand.claim(session, worker)
        error = Failure(code="agent_error", message="né", retryable=True) if outcome == "failed" else None
        await stand.finish(failing, outcome=outcome, error=error)
    regenerate = commands.RegenerateTurn(
        session_id=session, key=stand.key(), turn_id=TurnId(stand.ids.uuid7()), source_turn_id=turn_id
    )
    await stand.pipeline.execute(regenerate)
    await stand.submit(session, "waits")
    branch = await stand.claim(session, worker)
    await stand.record(branch, [stand.text(branch, "a second answer")])
    await stand.finish(branch, ordinal=Ordinal(2), claim_next=worker)
    await stand.submit(session, "cancelled")
    return session


async def _rebuild(connection: Any, session_id: SessionId, generation: Generation, page: int) -> None:
    """Fold the log from zero into another generation, page by page, as a rebuild does."""
    rows = await connection.fetch(statements("reads")["page"], session_id, 0, 10_000)
    state = SessionState(session_id=session_id, turns={})
    for start in range(0, len(rows), page):
        before: dict[TurnId, Turn | None] = {}
        applied: list[AppliedEvent] = []
        for event in map(event_of, rows[start : start + page]):
            if event.turn_id is not None and event.turn_id not in before:
                known = state.turns.get(event.turn_id)
                before[event.turn_id] = known
            data = event.event()
            evolve(state, data, event.turn_id, event.sequence, event.created_at)
            applied.append(AppliedEvent(event.sequence, event.event_id, event.turn_id, event.created_at, data))
        after = {turn_id: state.turns[turn_id] for turn_id in before}
        change = SessionChange(session_id, generation, applied, before, after)
        for projection in session_projections():
            await projection.apply([change], cast(Transaction, connection))


async def _rows(connection: Any, table: str, generation: int) -> list[dict[str, Any]]:
    query = f"SELECT * FROM {table} WHERE generation = $1 ORDER BY session_id, first_sequence, enqueue_sequence"  # noqa: S608
    rows = await connection.fetch(query, generation)
    return [{name: value for name, value in row.items() if name != "generation"} for row in rows]


async def test_a_rebuild_from_event_zero_gives_the_same_rows_whatever_the_page(database: Database) -> None:
    dsn = await database.dsn_of("turnlog_worker")
    pool = await create_pool(dsn, size=2)
    async with postgres_stand(dsn, pool) as stand:
        await PostgresBlobs(pool).keep(b"abc")
        session = await _live(stand)
    connection = await asyncpg.connect(dsn)
    await prepare(connection)
    for generation, page in ((2, 1), (3, 4), (4, 1000)):
        await _rebuild(connection, session, Generation(generation), page)
        for table, count in (("turns", 6), ("messages", 10)):
            served, rebuilt = await _rows(connection, table, 1), await _rows(connection, table, generation)
            assert served == rebuilt
            assert len(served) == count
    await connection.close()
    await pool.close()


async def test_messages_say_what_is_left_after_items_and_turns_were_superseded(database: Database) -> None:
    dsn = await database.dsn_of("turnlog_worker")
    pool = await create_pool(dsn, size=2)
    async with postgres_stand(dsn, pool) as stand:
        await PostgresBlobs(pool).keep(b"abc")
        session = await _live(stand)
        page = await PostgresReadModels(pool).messages(session, limit=100)
        turns = (await PostgresReadModels(pool).turns(session)).items
        seen = [(m.role, m.ordinal, m.status, bytes(m.parts).decode()) for m in page.items]
        text = '[{"type":"text","text":"%s"}]'
        assert seen[:4] == [
            ("user", 0, "superseded", text % "ünïcode \U0001f600"),
            ("assistant", 1, "superseded", text % "first half \U0001f680"),
            ("assistant", 2, "superseded", text % "gone as a whole"),
            ("assistant", 3, "superseded", text % "cut"),
        ]
        assert [(role, status) for role, _, status, _ in seen[4:]] == [
            ("user", "complete"),
            ("user", "complete"),
            ("user", "complete"),
            ("assistant", "complete"),
            ("user", "complete"),
            ("user", "complete"),
        ]
        assert page.as_of_sequence == (await stand.store.heads([session]))[session].last_sequence
        assert [turn.status for turn in reversed(turns)] == [
            "completed",
            "failed",
            "completed",
            "completed",
            "running",
            "queued",
        ]
        assert turns[-1].superseded_by == turns[2].turn_id
        assert turns[-1].requirements[0].answer is not None
    await pool.close()


async def test_pages_of_messages_meet_without_gap_or_repeat_in_both_directions(database: Database) -> None:
    dsn = await database.dsn_of("turnlog_worker")
    pool = await create_pool(dsn, size=2)
    async with postgres_stand(dsn, pool) as stand:
        await PostgresBlobs(pool).keep(b"abc")
        session = await _live(stand)
        reads = PostgresReadModels(pool)
        everything = [m.message_id for m in (await reads.messages(session, limit=100)).items]
        backwards: list[str] = []
        page = await reads.messages(session, limit=3)
        backwards = [m.message_id for m in page.items]
        while page.next_cursor is not None:
            page = await reads.messages(session, limit=3, before=page.next_cursor)
            backwards = [m.message_id for m in page.items] + backwards
        forwards: list[str] = []
        cursor: str | None = "0.0"
        while cursor is not None:
            page = await reads.messages(session, limit=3, after=cursor)
            forwards += [m.message_id for m in page.items]
            cursor = page.next_cursor
        assert backwards == everything == forwards
    await pool.close()


async def test_a_process_without_the_serving_version_refuses_to_append(database: Database) -> None:
    dsn = await database.dsn_of("turnlog_worker")
    pool = await create_pool(dsn, size=2)
    async with postgres_stand(dsn, pool) as stand:
        old, other = await stand.create(), await stand.create()
        admin = await asyncpg.connect(database.dsn)
        await admin.execute("INSERT INTO projection_generations VALUES ('messages', 2, 2)")
        await stand.submit(old)
        with pytest.raises(VersionMismatch) as refused:
            await stand.create()
        assert refused.value.fields == {"name": "messages", "have": "1", "need": 2}
        await admin.execute("UPDATE sessions SET messages_generation = 2 WHERE session_id = $1", other)
        with pytest.raises(VersionMismatch):
            await stand.submit(other)
        await stand.submit(old)
        async with open_pipeline(dsn) as fresh:
            with pytest.raises(VersionMismatch):
                await fresh.execute(stand.submission(other))
            await fresh.execute(stand.submission(old))
        assert len(await stand.events(other)) == 1
        assert len(await stand.events(old)) == 4
        await admin.close()
    await pool.close()
