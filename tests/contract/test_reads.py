"""What every event store and feed gives."""

import asyncio

import pytest

from domain.errors import SessionNotFound
from domain.ids import Sequence, SessionId
from domain.ports import FeedPosition
from tests.contract.stands import InMemory, OnPostgres
from tests.support.stand import Stand


class ReadContract:
    """One body; see the classes at the end for what it runs on."""

    async def test_a_page_holds_at_least_one_event_and_otherwise_what_fits(self, stand: Stand) -> None:
        session = await stand.create()
        for size in (10, 200_000, 10, 10):
            await stand.submit(session, "x" * size)
        one = await stand.store.page(session, Sequence(2), 1000, 100)
        assert [event.sequence for event in one.events] == [3]
        two = await stand.store.page(session, Sequence(3), 1000, 100)
        assert ([event.sequence for event in two.events], two.head) == ([4, 5], 5)
        limited = await stand.store.page(session, Sequence(0), 10**9, 2)
        assert [event.sequence for event in limited.events] == [1, 2]

    async def test_a_page_at_or_beyond_the_head_is_empty_and_names_the_head(self, stand: Stand) -> None:
        session = await stand.create()
        for after in (1, 7):
            page = await stand.store.page(session, Sequence(after), 1000, 100)
            assert (page.events, page.head) == ([], 1)

    async def test_an_unknown_session_is_not_found(self, stand: Stand) -> None:
        with pytest.raises(SessionNotFound):
            await stand.store.page(SessionId(stand.ids.uuid7()), Sequence(0), 1000, 100)

    async def test_heads_are_those_of_sessions_that_exist(self, stand: Stand) -> None:
        sessions = [await stand.create() for _ in range(3)]
        nobody = SessionId(stand.ids.uuid7())
        heads = await stand.store.heads([*sessions, nobody])
        assert set(heads) == set(sessions)
        assert await stand.store.heads([]) == {}

    async def test_the_feed_gives_every_event_once_and_each_session_in_sequence(self, stand: Stand) -> None:
        sessions = await asyncio.gather(*[stand.create() for _ in range(5)])
        await asyncio.gather(*[stand.submit(session) for _ in range(10) for session in sessions])
        position, seen = FeedPosition(), dict.fromkeys(sessions, 0)
        while entries := await stand.feed.read(position, 7):
            for at, event in entries:
                assert at > position
                position = at
                seen[event.session_id] += 1
                assert event.sequence == seen[event.session_id]
        assert seen == dict.fromkeys(sessions, 11)


class TestReadsInMemory(InMemory, ReadContract):
    """On the memory implementation."""


class TestReadsOnPostgres(OnPostgres, ReadContract):
    """On PostgreSQL."""
