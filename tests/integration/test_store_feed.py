"""The order across sessions: never an inversion within a session, never an event behind the reader's back."""

import asyncio
from collections import defaultdict

import asyncpg
import pytest

from domain.errors import NothingToClaim
from domain.ports import FeedPosition
from infra.postgres.feed import PostgresFeed
from infra.postgres.pool import create_pool
from tests.support.databases import Database
from tests.support.stand import Stand, open_pipeline, postgres_stand
from tests.support.waiting import eventually

pytestmark = pytest.mark.every_postgres


class Reader:
    """Follows the feed, or reads naively by position; counts what it saw of each session."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._connection = connection
        self.feed_at = FeedPosition()
        self.naive_at = 0
        self.by_feed: dict[str, list[int]] = defaultdict(list)
        self.naively = 0
        self.inversions = 0

    async def follow(self, feed: PostgresFeed) -> int:
        entries = await feed.read(self.feed_at, 1000)
        for position, event in entries:
            self.feed_at = position
            seen = self.by_feed[event.session_id]
            self.inversions += bool(seen) and event.sequence <= seen[-1]
            seen.append(event.sequence)
        return len(entries)

    async def read_naively(self) -> None:
        rows = await self._connection.fetch(
            "SELECT position FROM events WHERE position > $1 ORDER BY position", self.naive_at
        )
        self.naively += len(rows)
        if rows:
            self.naive_at = rows[-1]["position"]


async def test_with_claimers_running_the_feed_inverts_and_loses_nothing(database: Database) -> None:
    """Two processes' worth of pipelines append to the same sessions."""
    dsn = await database.dsn_of("turnlog_worker")
    pool = await create_pool(dsn, size=3)
    plain = await asyncpg.connect(dsn)
    feed, reader = PostgresFeed(pool), Reader(plain)
    async with postgres_stand(dsn, pool) as one, open_pipeline(dsn) as second:
        two = Stand(second, one.store, one.feed, one.leases, one.notifier, one.ids)
        sessions = [await one.create() for _ in range(4)]
        workers = [await one.worker() for _ in range(4)]
        done = asyncio.Event()

        async def follow() -> None:
            while not done.is_set():
                await reader.follow(feed)
                await asyncio.sleep(0.002)

        async def submitter(stand: Stand) -> None:
            for _ in range(40):
                await asyncio.gather(*[stand.submit(session) for session in sessions])

        async def claimer(number: int) -> None:
            stand = (one, two)[number % 2]
            for _ in range(40):
                for session in sessions:
                    try:
                        claim = await stand.claim(session, workers[number])
                    except NothingToClaim:
                        continue
                    await stand.finish(claim)

        follower = asyncio.create_task(follow())
        await asyncio.gather(submitter(one), submitter(two), *map(claimer, range(4)))
        done.set()
        await follower
        while await reader.follow(feed):
            pass
    total = await plain.fetchval("SELECT count(*) FROM events")
    assert reader.inversions == 0
    assert all(seen == list(range(1, len(seen) + 1)) for seen in reader.by_feed.values())
    assert sum(map(len, reader.by_feed.values())) == total
    await plain.close()
    await pool.close()


async def test_e01_a_slow_commit_hides_events_from_a_reader_by_position_and_not_from_the_feed(
    database: Database,
) -> None:
    """eventstore#3: numbers are taken before the commit, a later one commits first, and the reader skips the earlier
    one."""
    dsn = await database.dsn_of("turnlog_worker")
    pool = await create_pool(dsn, size=3)
    plain, slow = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    feed, reader = PostgresFeed(pool), Reader(plain)
    async with postgres_stand(dsn, pool) as stand:
        copied, other = await stand.create(), await stand.create()
        transaction = slow.transaction()
        await transaction.start()
        await slow.execute(
            """INSERT INTO events (session_id, sequence, event_id, type, schema_version, payload, payload_digest,
                   metadata, created_at, hash)
               SELECT gen_random_uuid(), 1, gen_random_uuid(), type, schema_version, payload, payload_digest, metadata,
                   created_at, hash FROM events WHERE session_id = $1""",
            copied,
        )
        await stand.submit(other)
        await reader.read_naively()
        await reader.follow(feed)
        assert (await feed.horizon()).transactions >= 1
        await transaction.commit()

        async def caught_up() -> bool:
            await reader.read_naively()
            await reader.follow(feed)
            return sum(map(len, reader.by_feed.values())) == 4

        await eventually(caught_up, "the feed has all four events")
        assert reader.naively == 3
        assert reader.inversions == 0
    for connection in (plain, slow):
        await connection.close()
    await pool.close()
