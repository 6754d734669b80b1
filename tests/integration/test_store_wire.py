"""Replay pages in the wire's form: ready bytes, cut by size, the same envelopes that were published."""

import pytest

from domain.errors import SessionNotFound
from domain.events.envelope import envelope_of
from domain.ids import Sequence, SessionId
from infra.postgres.pool import create_pool
from infra.postgres.store import PostgresEventStore
from infra.postgres.wire import WirePage
from tests.support.databases import Database
from tests.support.stand import postgres_stand

pytestmark = pytest.mark.every_postgres

LIMIT = 4000


async def test_pages_joined_are_the_published_envelopes_and_none_is_larger_than_it_must_be(database: Database) -> None:
    dsn = await database.dsn_of("turnlog_agent")
    pool = await create_pool(dsn, size=2)
    async with postgres_stand(dsn, pool) as stand:
        session = await stand.create()
        for size in (10, 10, 3000, 9000, 10, 2000, 2000, 10):
            await stand.submit(session, "é" * (size // 2))
        store = PostgresEventStore(pool)
        expected = [envelope_of(event) for event in await stand.events(session)]
        pages: list[WirePage] = []
        after = Sequence(0)
        while (page := await store.wire_page(session, after, LIMIT, "json")).body:
            assert (page.first, page.head, page.closed) == (after + 1, 9, False)
            assert len(page.body) <= LIMIT or page.first == page.last
            pages.append(page)
            after = page.last
        assert b",".join(page.body for page in pages) == b",".join(expected)
        assert [page.last for page in pages] == [3, 4, 5, 7, 9]
        streamed = await store.wire_page(session, Sequence(7), LIMIT, "sse")
        assert streamed.body == b"".join(
            b"id: %d\nevent: turn.queued\ndata: %s\n\n" % (number, expected[number - 1]) for number in (8, 9)
        )
        assert (await store.wire_page(session, Sequence(0), 10**6, "json", 2)).last == 2
    await pool.close()


async def test_at_the_head_a_page_is_empty_and_an_unknown_session_is_not_found(database: Database) -> None:
    dsn = await database.dsn_of("turnlog_agent")
    pool = await create_pool(dsn, size=2)
    async with postgres_stand(dsn, pool) as stand:
        session = await stand.create()
        store = PostgresEventStore(pool)
        for after in (1, 99):
            page = await store.wire_page(session, Sequence(after), LIMIT, "sse")
            assert (page.first, page.last, page.head, page.body) == (after, after, 1, b"")
        with pytest.raises(SessionNotFound):
            await store.wire_page(SessionId(stand.ids.uuid7()), Sequence(0), LIMIT, "sse")
    await pool.close()
