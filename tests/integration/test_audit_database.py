"""The audit of a real database: what a superuser changes behind everyone's back is found and named."""

import asyncio
from collections.abc import Sequence

import asyncpg
import pytest

from infra.postgres.audit_reader import SessionIds, open_audit_reader
from infra.postgres.pool import create_pool
from projections.audit import SessionReport
from services.cli.auditing import audit_range
from tests.support.databases import Database
from tests.support.planted import copies, put
from tests.support.stand import postgres_stand
from tests.support.story import story
from tests.support.written import WORKER, WrittenSession

WHOLE = story()


async def audit(database: Database, events_a_range: int = 100) -> list[SessionReport]:
    """As the projector role, range by range."""
    reports: list[SessionReport] = []
    async with open_audit_reader(await database.dsn_of("turnlog_projector")) as reader:
        for ids in await reader.ranges(events_a_range):
            reports += [report async for report in audit_range(reader, ids)]
    return reports


async def planted(database: Database, count: int, *statements: str) -> None:
    connection = await asyncpg.connect(database.dsn)
    try:
        await put(connection, copies(WHOLE, count))
        # Replication mode switches the triggers off that keep events as they are.
        await connection.execute("SET session_replication_role = replica")
        for statement in statements:
            assert (await connection.execute(statement)).rpartition(" ")[2] == "1"
    finally:
        await connection.close()


def named(reports: Sequence[SessionReport]) -> list[tuple[int, str, int]]:
    return [(int(f.session_id[-12:], 16), f.rule, f.sequence) for report in reports for f in report.findings]


DAMAGE: list[tuple[str, str, int]] = [
    ("sequence", "DELETE FROM events WHERE {mine} AND sequence = 10", 11),
    ("chain", "UPDATE events SET created_at = created_at + interval '1 s' WHERE {mine} AND sequence = 9", 9),
    ("chain", "UPDATE events SET turn_id = NULL WHERE {mine} AND sequence = 9", 9),
    ("payload_digest", "UPDATE events SET payload = '{{}}' WHERE {mine} AND sequence = 9", 9),
    ("private_digest", "UPDATE events SET private = '\\x00' WHERE {mine} AND type = 'checkpoint.reached'", 15),
    ("turns", "UPDATE turns SET output = 'other' WHERE {mine} AND enqueue_sequence = 4", 32),
    ("turns", "UPDATE turns SET last_sequence = last_sequence - 1 WHERE {mine} AND status = 'failed'", 21),
    ("messages", "UPDATE messages SET parts = '[]' WHERE {mine} AND enqueue_sequence = 6 AND ordinal = 0", 38),
    ("messages", "DELETE FROM messages WHERE {mine} AND enqueue_sequence = 7", 39),
    ("head", "UPDATE sessions SET queued_count = 0 WHERE {mine}", 41),
    ("head", "DELETE FROM sessions WHERE {mine}", 41),
    ("replies", "UPDATE command_log SET reply = '{{}}' WHERE {mine} AND idempotency_key = 'key:resume'", 0),
]


async def test_damage_is_found_and_named_and_nothing_else(database: Database) -> None:
    """Each in a session of its own, and one more session without any."""
    ids = [copy.session_id for copy in copies(WHOLE, len(DAMAGE) + 1)]
    statements = [statement for _, statement, _ in DAMAGE]
    mine = [f"session_id = '{session_id}'" for session_id in ids]
    await planted(database, len(ids), *[s.format(mine=m) for s, m in zip(statements, mine, strict=False)])
    expected = [(number, rule, sequence) for number, (rule, _, sequence) in enumerate(DAMAGE)]
    reports = await audit(database)
    assert named(reports) == expected
    assert [r.session_id for r in reports] == ids
    assert (reports[-1].events, reports[-1].judged_to) == (len(WHOLE.events), len(WHOLE.events))
    assert named(await audit(database, 100_000)) == expected


async def test_what_only_other_tables_know_of_is_found(database: Database) -> None:
    await planted(database, 3)
    connection = await asyncpg.connect(database.dsn)
    await connection.execute("SET session_replication_role = replica")
    await connection.execute("DELETE FROM events WHERE session_id::text LIKE '%1'")
    await connection.execute("DELETE FROM sessions WHERE session_id::text LIKE '%1'")
    await connection.close()
    reports = await audit(database)
    assert {session for session, _, _ in named(reports)} == {1}
    assert {rule for _, rule, _ in named(reports)} == {"head", "turns", "messages", "replies"}


async def test_one_session_can_be_asked_for(database: Database) -> None:
    await planted(database, 3)
    session_id = next(iter(copies(WHOLE, 1))).session_id
    async with open_audit_reader(await database.dsn_of("turnlog_projector")) as reader:
        reports = [r async for r in audit_range(reader, SessionIds(session_id, session_id))]
    assert [(r.session_id, r.findings) for r in reports] == [(session_id, [])]


@pytest.mark.every_postgres
async def test_what_the_pipeline_wrote_is_clean(database: Database) -> None:
    """The same story through the real pipeline, in two sessions at once."""
    stories = [story(1), story(2)]
    pool = await create_pool(await database.dsn_of("turnlog_worker"), size=2)
    async with postgres_stand(await database.dsn_of("turnlog_worker"), pool) as stand:
        await stand.leases.begin(WORKER)

        async def tell(session: WrittenSession) -> None:
            for command in session.accepted:
                await stand.pipeline.execute(command)

        await asyncio.gather(*map(tell, stories))
    await pool.close()
    reports = await audit(database)
    assert named(reports) == []
    assert [(r.session_id, r.events, r.judged_to) for r in reports] == [
        (session.session_id, len(session.events), len(session.events)) for session in stories
    ]
