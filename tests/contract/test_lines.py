"""What would break the line of a stream that it stands in: refused where it is made, and harmless where it is read."""

from typing import Any, ClassVar

import asyncpg
import msgspec
import pytest

from domain.errors import IllegalEvents
from domain.events import registry
from domain.events.base import Event
from domain.events.envelope import Draft
from domain.events.item import RuntimeEvent
from domain.events.naming import is_type
from domain.ids import Sequence, TurnId
from infra.postgres.pool import create_pool
from infra.postgres.store import PostgresEventStore
from tests.contract.stands import InMemory, OnPostgres
from tests.support.databases import Database
from tests.support.sse import SseParser
from tests.support.stand import Stand, postgres_stand

NAMES = ("turn.\nstarted", "turn.started\n", "a\rb", "a\r\nb", "a\x0bb", "a\x85b", "a\u2028b", "a b", 'a"b', "a\\b", "")
"""None of these is a type: line breaks of every kind, and what JSON would have to escape."""


def test_every_type_of_ours_is_a_type_and_what_breaks_a_line_is_none() -> None:
    assert all(is_type(name) for name in registry.EVENT_TYPES)
    assert not [name for name in (*NAMES, "a" * 101, ".a", "a.", "a..b", "A.b") if is_type(name)]


class LineContract:
    async def test_a_type_or_payload_that_breaks_a_line_is_refused_and_writes_nothing(self, stand: Stand) -> None:
        session, worker = await stand.create(), await stand.worker()
        await stand.submit(session)
        claim = await stand.claim(session, worker)
        turn, before = TurnId(claim.turn_id), await stand.types(session)
        whole = stand.text(claim, "fine")
        for name in NAMES:

            class Foreign(Event, frozen=True, kw_only=True):
                type: ClassVar[str] = name

            with pytest.raises(IllegalEvents):
                await stand.record(claim, [whole, Draft(Foreign(), turn)])
        for raw in (b'{"a":\n1}', b'{"a":\r1}', b"[\r\n]"):
            payload: Any = msgspec.Raw(raw)
            numbers: dict[str, Any] = {"attempt": 1, "frame": claim.frame_base + 1}
            with pytest.raises(IllegalEvents):
                await stand.record(claim, [whole, Draft(RuntimeEvent(**numbers, name="x", payload=payload), turn)])
        assert await stand.types(session) == before
        await stand.record(claim, [whole])
        assert await stand.types(session) == [*before, "item.completed"]


class TestMemory(InMemory, LineContract):
    pass


class TestPostgres(OnPostgres, LineContract):
    pass


@pytest.mark.every_postgres
async def test_the_database_takes_no_other_type_and_a_page_keeps_its_lines(database: Database) -> None:
    """Rows that somebody writes past the pipeline: a type is refused by the database, a payload cannot break a page."""
    pool = await create_pool(await database.dsn_of("turnlog_worker"), size=2)
    connection = await asyncpg.connect(database.dsn)
    async with postgres_stand(await database.dsn_of("turnlog_worker"), pool) as stand:
        session = await stand.create()
        insert = """
            INSERT INTO events (session_id, sequence, event_id, type, schema_version, payload, payload_digest, metadata,
                created_at, hash)
            VALUES ($1::text::uuid, 2, gen_random_uuid(), $2, 1, $3::text::json, '', '{}', now(), '')"""
        for name in (*NAMES, "a" * 101):
            with pytest.raises(asyncpg.CheckViolationError):
                await connection.execute(insert, session, name, "{}")
        await connection.execute(insert, session, "a_1.b", '{"a":\n\n"x",\r\n"b":\r2}')
        await connection.execute("UPDATE sessions SET last_sequence = 2 WHERE session_id = $1::text::uuid", session)
        page = await PostgresEventStore(pool).wire_page(session, Sequence(0), 10_000, "sse")
        first, second = SseParser().feed(page.body)
        assert (first.id, first.event, second.id, second.event) == ("1", "session.created", "2", "a_1.b")
        assert second.json["data"] == {"a": "x", "b": 2}
    await connection.close()
    await pool.close()
