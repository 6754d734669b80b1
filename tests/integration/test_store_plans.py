"""What a page costs does not depend on what lies behind it, nor on what the planner believes of the tables."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import msgspec
import pytest

from domain.ids import Sequence, SessionId
from infra.postgres.pool import KEY_RANGES, Pool, create_pool
from infra.postgres.sql import statements
from infra.postgres.store import PostgresEventStore
from infra.postgres.wire import block, most
from tests.support.databases import Database

pytestmark = pytest.mark.every_postgres

_SQL = statements("reads")
_LONG = SessionId("0192f3c1-0000-7000-8000-0000000000aa")
_LIMIT = 64 * 1024

_SESSIONS = """
INSERT INTO sessions (session_id, agent_id, component, last_sequence, head_hash, fence, queue_state,
    next_enqueue_sequence, queued_count, closing, turns_generation, messages_generation, last_event_at, created_at)
SELECT s::uuid, 'a', 'agent', $2, '', 0, 'open', 1, 0, false, 1, 1, now(), now() FROM unnest($1::text[]) AS s
"""
_EVENTS = """
INSERT INTO events (session_id, sequence, event_id, type, schema_version, turn_id, payload, payload_digest, metadata,
    created_at, hash)
SELECT s::uuid, n, gen_random_uuid(), 'turn.queued', 1, gen_random_uuid(), json_build_object('a', n), '', '{}', now(),
    ''
FROM unnest($1::text[]) AS s, generate_series(1, $2) AS n
"""
_ONE = """
INSERT INTO events (session_id, sequence, event_id, type, schema_version, turn_id, payload, payload_digest, metadata,
    created_at, hash)
VALUES ($1::text::uuid, $2, gen_random_uuid(), $3, $4, $5::text::uuid, $6::text::json, '', '{}',
    $7::text::timestamptz, '')
"""


@pytest.fixture
async def server(database: Database) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    connection = await asyncpg.connect(database.dsn)
    await connection.execute("ALTER TABLE events SET (autovacuum_enabled = off)")
    yield connection
    await connection.close()


@pytest.fixture
async def reads(database: Database) -> AsyncIterator[Pool]:
    pool = await create_pool(await database.dsn_of("turnlog_agent"), size=2, planner=KEY_RANGES)
    yield pool
    await pool.close()


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)


async def _explained(pool: Pool, name: str, *arguments: object) -> dict[str, Any]:
    """The plan of a statement as it ran, after more runs than the planner needs to settle for a generic one."""
    async with pool.acquire() as connection:
        statement = await connection.prepare(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {_SQL[name]}")
        for _ in range(7):
            found = await statement.fetchval(*arguments)
    plan: dict[str, Any] = msgspec.json.decode(found)[0]["Plan"]
    return plan


async def _costs_what_it_holds(pool: Pool, name: str) -> None:
    around = most(5_000)
    plan = await _explained(pool, name, _LONG, 1_000, _LIMIT // around, _LIMIT, around)
    scans = [node for node in _nodes(plan) if node.get("Relation Name") == "events"]
    assert [(node["Node Type"], node["Index Name"]) for node in scans] == [("Index Scan", "events_pkey")]
    assert scans[0]["Actual Rows"] <= _LIMIT // around
    # What comes out of the index is in order already, for the windows and for what is put together.
    assert name == "wire_page" or "Sort" not in {node["Node Type"] for node in _nodes(plan)}
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 60


async def test_a_page_reads_its_own_rows_by_the_key_and_no_others(
    server: "asyncpg.Connection[asyncpg.Record]", reads: Pool
) -> None:
    await server.execute(_SESSIONS, [_LONG], 5_000)
    await server.execute(_EVENTS, [_LONG], 5_000)
    # Nothing is known of the table.
    for name in ("stream_page", "wire_page"):
        await _costs_what_it_holds(reads, name)
    short = [f"0192f3c1-0000-7000-8000-{number:012x}" for number in range(1_000, 3_000)]
    await server.execute(_EVENTS, short, 2)
    # Sessions are said to be short: the long one is not among what is sampled.
    await server.execute("ALTER TABLE events ALTER COLUMN session_id SET STATISTICS 0")
    await server.execute("ANALYZE events")
    for name in ("stream_page", "wire_page"):
        await _costs_what_it_holds(reads, name)


async def test_large_payloads_behind_a_page_are_not_read(
    server: "asyncpg.Connection[asyncpg.Record]", reads: Pool
) -> None:
    await server.execute(_SESSIONS, [_LONG], 60)
    # Nothing that could be compressed.
    large = """
        INSERT INTO events (session_id, sequence, event_id, type, schema_version, payload, payload_digest, metadata,
            created_at, hash)
        SELECT $1::text::uuid, n, gen_random_uuid(), 'item.completed', 1, json_build_object('text', t.text), '', '{}',
            now(), ''
        FROM generate_series(1, 60) AS n, LATERAL (
            SELECT string_agg(gen_random_uuid()::text, '') AS text FROM generate_series(1, 2000 + n)
        ) AS t
    """
    await server.execute(large, _LONG)
    around = most(60)
    plan = await _explained(reads, "stream_page", _LONG, 0, 1_000, _LIMIT, around)
    # One payload takes 10 blocks, all of them 600.
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 120
    page = await PostgresEventStore(reads).wire_page(_LONG, Sequence(0), _LIMIT, "sse")
    assert page.last == 1
    assert len(page.body) > _LIMIT


async def test_a_page_that_the_server_makes_is_ours_to_the_byte(
    server: "asyncpg.Connection[asyncpg.Record]", reads: Pool
) -> None:
    turn = "0192f3c1-0000-7000-8000-0000000000bb"
    rows = [
        ("session.created", 1, None, "{}", "2026-01-31 12:00:00+00"),
        ("a", 2**31 - 1, turn, '{"é":"\\u0000 \\n \\"", "b" :  1.50}', "1999-12-31 23:59:59.999999+00"),
        ("x.y_1", 3, turn, '"𝄞\u2028"', "9999-12-31 23:59:59.000001+00"),
        ("b" * 100, 1, None, "[1,\t2]", "2026-06-30 12:34:56.1+05:30"),
        ("item.completed", 1, turn, '{"text":"' + "ü%" * 21_500 + '"}', "2026-12-01 00:00:00.000010+00"),
        ("item.completed", 1, turn, '{"text":"' + "\\\\" * 30_000 + '"}', "2026-12-01 00:00:00.5+00"),
    ]
    await server.execute(_SESSIONS, [_LONG], len(rows))
    for number, (kind, version, named, payload, at) in enumerate(rows, 1):
        await server.execute(_ONE, _LONG, number, kind, version, named, payload, at)
    async with reads.acquire() as connection:
        found = await connection.fetch(_SQL["wire_page"], _LONG, 0, 100, 10**9, 1)
        made = await connection.fetchrow(_SQL["stream_page"], _LONG, 0, 100, 10**9, 1)
    assert made is not None
    assert (made["events"], made["body"]) == (len(rows), b"".join(block(_LONG, row, "sse") for row in found))
    store, after, pages = PostgresEventStore(reads), Sequence(0), []
    while (page := await store.wire_page(_LONG, after, _LIMIT, "sse")).body:
        assert len(page.body) <= _LIMIT or page.first == page.last
        pages.append(page)
        after = page.last
    assert b"".join(page.body for page in pages) == made["body"]
    assert [page.last for page in pages] == [4, 5, 6]
