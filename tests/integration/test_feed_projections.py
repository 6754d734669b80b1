"""Feed projections on a real PostgreSQL: each event once, whoever runs them; what cannot be applied is set aside."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from domain.events.envelope import Draft
from domain.events.item import UsageRecorded
from domain.ids import SessionId, TurnId
from domain.ports import FeedEvent, FeedPosition, FeedProjection, Statement, Transaction
from infra.postgres.feed import PostgresFeed
from infra.postgres.feed_slots import BadProjection, ClaimLost, PostgresFeedSlots
from infra.postgres.pool import Pool, create_pool
from projections.feeding import feed_projections
from projections.session_overview.projection import SessionOverview
from projections.usage.projection import Usage
from services.projector.projections import all_projections
from services.projector.retrying import retry
from tests.support.databases import Database
from tests.support.feeding import caught_up, running
from tests.support.stand import Stand, postgres_stand
from tests.support.waiting import eventually

NAMES = ("session_overview", "usage", "search", "hooks")


class Lines:
    """Somebody's own: a line an event, in the order of their coming."""

    name = "lines"
    version = 1
    tables = ("lines",)
    definition = "CREATE TABLE lines (line bigint GENERATED ALWAYS AS IDENTITY, session_id uuid, sequence bigint);"

    def __init__(self, poison: frozenset[int] = frozenset()) -> None:
        self.poison = poison

    async def apply(self, events: Sequence[FeedEvent], tx: Transaction) -> None:
        for event in events:
            if event.sequence in self.poison:
                raise ZeroDivisionError("secret words")
            insert = "INSERT INTO lines (session_id, sequence) VALUES ($1::uuid, $2)"
            await tx.execute(Statement(insert), event.session_id, event.sequence)

    async def erase(self, session_id: SessionId, tx: Transaction) -> None:
        await tx.execute(Statement("DELETE FROM lines WHERE session_id = $1::uuid"), session_id)


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[Pool]:
    made = await create_pool(await database.dsn_of("turnlog_projector"), size=8)
    yield made
    await made.close()


@pytest.fixture
async def stand(database: Database) -> AsyncIterator[Stand]:
    dsn = await database.dsn_of("turnlog_worker")
    reads = await create_pool(dsn, size=2)
    async with postgres_stand(dsn, reads) as made:
        yield made
    await reads.close()


async def turn(stand: Stand, session: SessionId, text: str, said: str, tokens: int = 3) -> None:
    worker = await stand.worker()
    await stand.submit(session, text)
    claim = await stand.claim(session, worker)
    used = UsageRecorded(
        attempt=1, frame=claim.frame_base + 9, model="m", input_tokens=tokens, output_tokens=1, cache_read_tokens=2
    )
    await stand.record(claim, [stand.text(claim, said), Draft(used, TurnId(claim.turn_id))])
    await stand.finish(claim, ordinal=2)


async def lines(pool: Pool, session: SessionId) -> list[int]:
    rows = await pool.fetch("SELECT sequence FROM feed.lines WHERE session_id = $1 ORDER BY line", session)
    return [row["sequence"] for row in rows]


async def test_the_built_in_ones_say_what_happened(stand: Stand, pool: Pool) -> None:
    one, two = await stand.create(), await stand.create()
    async with running(pool, *feed_projections()):
        await turn(stand, one, "Hello there", "General 東京都に行く")
        await turn(stand, one, "again", "fine", tokens=4)
        await turn(stand, two, "x", "y")
        await stand.submit(two, "waits")
        await caught_up(pool, *NAMES)
    rows = await pool.fetch("SELECT * FROM feed.usage_tokens ORDER BY session_id")
    assert [(r["session_id"], r["agent_id"], r["user_id"], r["requests"], r["input_tokens"]) for r in rows] == [
        (one, "shout", "system", 2, 7),
        (two, "shout", "system", 1, 3),
    ]
    rows = await pool.fetch("SELECT * FROM feed.session_overview ORDER BY session_id")
    assert [(r["session_id"], r["queued"], r["completed"], r["last_input"]) for r in rows] == [
        (one, 2, 2, "again"),
        (two, 2, 1, "waits"),
    ]
    heads = await stand.store.heads([one, two])
    assert [r["last_sequence"] for r in rows] == [heads[one].last_sequence, heads[two].last_sequence]
    assert len(await pool.fetch("SELECT FROM feed.search_texts")) == 7


async def test_several_runners_share_without_double_work_while_claims_are_torn_away(stand: Stand, pool: Pool) -> None:
    slots = PostgresFeedSlots(pool)
    sessions = [await stand.create() for _ in range(4)]
    writing = asyncio.gather(*(stand.submit(s, "x") for s in sessions * 10))
    async with AsyncExitStack() as stack:
        for number in range(3):
            await stack.enter_async_context(running(pool, Lines(), runner=f"r{number}", batch=3))
        taken = 0
        while taken < 10:  # a runner that is alive loses its claim in mid-work
            if await slots.claim("lines", "serving", "thief", 0.01, force=True) is not None:
                taken += 1
            await asyncio.sleep(0.02)
        await writing
        await caught_up(pool, "lines")
    for session in sessions:
        head = (await stand.store.heads([session]))[session].last_sequence
        assert await lines(pool, session) == list(range(1, head + 1))


async def test_who_lost_its_claim_writes_nothing(stand: Stand, pool: Pool) -> None:
    session = await stand.create()
    slots, projection = PostgresFeedSlots(pool), Lines()
    await slots.open(projection, "serving")
    mine = await slots.claim("lines", "serving", "me", 60)
    assert mine is not None
    assert await slots.claim("lines", "serving", "other", 60) is None
    assert await slots.claim("lines", "serving", "other", 60, force=True) is not None

    async def write(tx: Transaction) -> None:
        insert = "INSERT INTO lines (session_id, sequence) VALUES ($1::uuid, 1)"
        await tx.execute(Statement(insert), session)

    with pytest.raises(ClaimLost):
        await slots.step("lines", "serving", mine.fence, mine.at, FeedPosition(1, 1), 60, write)
    assert await lines(pool, session) == []


async def test_poison_is_parked_with_its_reason_and_applied_when_it_is_mended(stand: Stand, pool: Pool) -> None:
    session = await stand.create()
    for number in range(4):
        await stand.submit(session, str(number))
    slots = PostgresFeedSlots(pool)
    async with running(pool, Lines(frozenset({3}))):
        (state,) = await caught_up(pool, "lines")
    assert state.parked == 1
    assert await lines(pool, session) == [1, 2, 4, 5]
    (parked,) = await slots.parked("lines")
    assert (parked.session_id, parked.sequence, parked.attempts) == (session, 3, 1)
    # Where it failed, and no words: an error's text may be what a user wrote.
    assert re.fullmatch(r"ZeroDivisionError: .*test_feed_projections\.Lines\.apply, line \d+", parked.reason)
    assert await retry(pool, Lines(frozenset({3}))) == (0, 1)
    (parked,) = await slots.parked("lines")
    assert parked.attempts == 2
    assert re.fullmatch(r"ZeroDivisionError: .*test_feed_projections\.Lines\.apply, line \d+", parked.reason)
    assert await retry(pool, Lines()) == (1, 0)
    assert await slots.parked() == []
    assert await lines(pool, session) == [1, 2, 4, 5, 3]


async def test_a_new_version_is_not_applied_to_old_tables(
    stand: Stand, pool: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    session = await stand.create()
    async with running(pool, Lines()):
        await caught_up(pool, "lines")
    newer = Lines()
    newer.version = 2
    await stand.submit(session)
    async with running(pool, newer):

        async def told() -> bool:
            return "run: turnlog rebuild lines" in "".join(capsys.readouterr())

        await eventually(told, "the command to run is named")
    assert await lines(pool, session) == [1]


async def test_a_hint_is_followed_at_once(stand: Stand, pool: Pool) -> None:
    from services.projector.feeding import Hint

    hint, session = Hint(), await stand.create()
    async with running(pool, Lines(), hint=hint, poll=0.1):
        await caught_up(pool, "lines")
    async with running(pool, Lines(), hint=hint, poll=600.0):

        async def seen() -> bool:
            hint.give()
            return await lines(pool, session) == [1, 2]

        await stand.submit(session)
        await eventually(seen, "the event is applied long before the next poll")


async def test_names_that_cannot_be_tables_are_refused(pool: Pool) -> None:
    bad = Lines()
    bad.tables = ('lines"; DROP TABLE x',)
    with pytest.raises(BadProjection):
        await PostgresFeedSlots(pool).open(bad, "serving")
    with pytest.raises(BadProjection):
        all_projections(["projections.usage.projection:Usage"])
    made = all_projections(["tests.integration.test_feed_projections:Lines"])
    assert [p.name for p in made] == [*NAMES, "lines"]


async def test_pages_of_any_size_give_the_same_rows(stand: Stand, pool: Pool) -> None:
    session = await stand.create()
    for number in range(5):
        await turn(stand, session, f"in {number}", f"out {number}", number)
    kinds: list[type[Any]] = [Usage, SessionOverview]
    made: dict[int, list[Any]] = {}
    for batch in (1, 7, 1000):
        projections: list[FeedProjection] = [kind() for kind in kinds]
        async with running(pool, *projections, batch=batch):
            await caught_up(pool, *(p.name for p in projections))
        tables = ("usage_tokens", "session_overview")
        made[batch] = [await pool.fetch(f"SELECT * FROM feed.{table} ORDER BY session_id") for table in tables]  # noqa: S608
        for projection in projections:
            await PostgresFeedSlots(pool).drop(projection.name, "serving")
    assert made[1] == made[7] == made[1000]
    assert (await PostgresFeed(pool).horizon()).transactions >= 0
