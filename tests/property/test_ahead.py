"""A replay with pages on their way: complete and in order whatever events weigh, with few pages at once."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from services.gateway.sse.ahead import Ahead
from services.gateway.sse.meter import Meter
from services.gateway.sse.pages import Pages
from services.gateway.sse.replays import Replays
from services.gateway.sse.tail import Tail, Tails
from tests.support.streaming import Log, nothing

SESSION = "00000000-0000-7000-8000-000000000001"
PAGE = 4_000
PADS = st.lists(st.one_of(st.integers(0, 30), st.integers(0, 9_000)), min_size=1, max_size=120)


async def _replayed(pads: list[int], kept: int) -> tuple[list[bytes], Log, int]:
    """What one viewer is given of events with so much padding, and how many questions were under way at most."""
    agent = Log(PAGE)
    for pad in pads:
        agent.append(SESSION, pad=pad)
    under_way = most = 0

    async def before_page() -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)

    async def after_page() -> None:
        nonlocal under_way
        under_way -= 1

    agent.before_page, agent.after_page = before_page, after_page
    given: list[bytes] = []
    async with asyncio.TaskGroup() as tasks:

        def spawn(coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
            return tasks.create_task(coroutine)

        tail = Tail(Tails(1 << 20), kept)
        pages = Pages(SESSION, Replays(agent, 8, Meter()), spawn, tail)
        ahead, cursor = Ahead(pages), 0
        while cursor < len(pads):
            page = await ahead.page(cursor)
            assert page.first == cursor + 1
            cursor = page.last
            given.append(page.body)
            ahead.look(page)
    return given, agent, most


@given(PADS, st.integers(500, 20_000))
def test_every_event_comes_once_and_in_order(pads: list[int], kept: int) -> None:
    given, agent, most = asyncio.run(_replayed(pads, kept))
    whole = asyncio.run(_whole(agent))
    assert b"".join(given) == whole
    assert most <= 3


async def _whole(agent: Log) -> bytes:
    agent.page_bytes = 1 << 30
    agent.before_page = agent.after_page = nothing
    return (await agent.page(SESSION, 0)).body


def test_pages_of_like_events_are_read_once_each() -> None:
    given, agent, most = asyncio.run(_replayed([100] * 200, 500))
    assert most == 2
    assert len(agent.pages) == len({after for _, after in agent.pages}) == len(given)
    # But for the first one nine tenths of a page are asked for.
    assert sum(map(len, given)) / PAGE <= len(given) <= 1.35 * sum(map(len, given)) / PAGE + 2
