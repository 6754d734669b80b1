"""Complete, in order, once each: whatever happens between the subscription, the replay and the live events."""

import asyncio
import random

import pytest

from domain.errors import AgentUnavailable
from services.gateway.sse.limits import Limits
from tests.support.sse import assert_gapless
from tests.support.streaming import FakeBroker, Hook, Log, nothing, stream_gateway, watching

S = "session"
T = "turn"


def commit(log: Log, broker: FakeBroker, count: int) -> None:
    """Commit first, publish after."""
    for _ in range(count):
        broker.event(S, log.append(S))


@pytest.mark.parametrize(
    "gap", ["before subscribe", "after subscribe", "before heads", "after heads", "before page", "after page"]
)
async def test_r01_r02_events_appended_in_any_gap_of_an_attach_arrive_once(gap: str) -> None:
    log, broker = Log(), FakeBroker()
    commit(log, broker, 10)

    def once() -> Hook:
        done = False

        async def append() -> None:
            nonlocal done
            if not done:
                done = True
                commit(log, broker, 50)

        return append

    owner = broker if "subscribe" in gap else log
    setattr(owner, gap.replace(" ", "_"), once())
    async with stream_gateway(log, broker) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 0).opened()
        await stream.sequence(60)
        commit(log, broker, 5)
        await stream.sequence(65)
        assert_gapless(stream.ids)


async def test_swapped_publishers_need_no_replay() -> None:
    log, broker = Log(), FakeBroker()
    log.append(S)
    async with stream_gateway(log, broker, Limits(hold_seconds=0.2)) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 1).opened()
        made = [log.append(S) for _ in range(3)]
        for envelope in (made[1], made[2], made[0], made[0]):
            broker.event(S, envelope)
        await stream.sequence(4)
        assert_gapless(stream.ids, first=2)
        assert log.pages == []


async def test_a_lost_notification_is_healed_by_one_replay_for_all_viewers() -> None:
    log, broker = Log(), FakeBroker()
    log.append(S)
    async with stream_gateway(log, broker) as gateway, watching(gateway.url) as (client,):
        streams = [await client.stream(S, 1).opened() for _ in range(5)]
        log.append(S)
        broker.event(S, log.append(S))
        for stream in streams:
            await stream.sequence(3)
            assert_gapless(stream.ids, first=2)
        assert log.pages == [(S, 1)]


async def test_r03_live_events_wait_for_a_replay_that_is_late_and_fails_once() -> None:
    log, broker = Log(), FakeBroker()
    log.append(S)
    asked = asyncio.Event()
    released = asyncio.Event()

    async def late() -> None:
        asked.set()
        await released.wait()
        log.before_page = nothing
        raise AgentUnavailable()

    log.before_page = late
    async with stream_gateway(log, broker) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 1).opened()
        log.append(S)
        commit(log, broker, 3)
        await asyncio.wait_for(asked.wait(), 5)
        commit(log, broker, 20)
        broker.live(S, "item.started", "t", item_id="i", attempt=1)
        commit(log, broker, 1)
        assert stream.ids == []
        released.set()
        await stream.sequence(26)
        assert_gapless(stream.ids, first=2)
        shown = [frame.id or frame.event for frame in stream.frames[1:]]
        assert shown[-2:] == ["item.started", "26"]


async def test_more_than_can_be_held_during_a_jump_is_pulled() -> None:
    log, broker = Log(page_bytes=64 * 1024), FakeBroker()
    log.append(S)
    released = asyncio.Event()

    async def late() -> None:
        await released.wait()

    log.before_page = late
    limits = Limits(viewer_buffer_bytes=128 * 1024)
    async with stream_gateway(log, broker, limits) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 1).opened()
        log.append(S)
        for _ in range(200):
            broker.event(S, log.append(S, pad=4000))
        released.set()
        await stream.sequence(202)
        commit(log, broker, 3)
        await stream.sequence(205)
        assert_gapless(stream.ids, first=2)


async def test_with_the_broker_down_heads_and_replay_deliver() -> None:
    log, broker = Log(), FakeBroker()
    log.append(S)
    async with stream_gateway(log, broker, Limits(heads_seconds=0.1)) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 0).opened()
        broker.down = True
        for expected in (5, 9):
            commit(log, broker, 4)
            await stream.sequence(expected)
        late = await client.stream(S, 0).opened()
        commit(log, broker, 1)
        await late.sequence(10)
        await stream.sequence(10)
        assert_gapless(stream.ids)
        assert_gapless(late.ids)


async def test_a_gap_told_by_the_broker_is_healed_at_once() -> None:
    log, broker = Log(), FakeBroker()
    log.append(S)
    async with stream_gateway(log, broker, Limits(heads_seconds=60)) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 1).opened()
        await asyncio.wait_for(_recheck(log), 5)
        log.append(S)
        broker.gap()
        await stream.sequence(2, timeout=1)


async def _recheck(log: Log) -> None:
    while len(log.head_requests) < 2:
        await asyncio.sleep(0.01)


async def test_the_last_event_before_silence_is_found_250_ms_after_the_attach() -> None:
    log, broker = Log(), FakeBroker()
    log.append(S)
    async with stream_gateway(log, broker, Limits(heads_seconds=60)) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 1).opened()
        log.append(S)
        await stream.sequence(2, timeout=1)


async def test_what_is_lost_right_after_a_terminal_event_is_found_soon() -> None:
    log, broker = Log(), FakeBroker()
    log.append(S)
    async with stream_gateway(log, broker, Limits(heads_seconds=60)) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 1).opened()
        await asyncio.wait_for(_recheck(log), 5)
        broker.event(S, log.append(S, "turn.completed", turn_id="t"))
        log.append(S)
        await stream.sequence(3, timeout=1)


async def test_all_sessions_are_compared_in_one_request() -> None:
    log, broker = Log(), FakeBroker()
    sessions = [f"session-{n}" for n in range(50)]
    for session in sessions:
        log.append(session)
    limits = Limits(heads_seconds=0.5, recheck_seconds=0.01)
    async with stream_gateway(log, broker, limits) as gateway, watching(gateway.url) as (client,):
        for session in sessions:
            await client.stream(session, 0).opened()
        async with asyncio.timeout(5):
            while not any(sorted(asked) == sorted(sessions) for asked in log.head_requests):
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("seed", range(8))
async def test_a_hostile_broker_and_viewers_who_come_and_go(seed: int) -> None:
    """Lost, doubled and swapped notifications, pages of a few events, viewers at random cursors."""
    dice = random.Random(seed)
    log, broker = Log(page_bytes=700), FakeBroker()
    log.append(S)
    limits = Limits(heads_seconds=0.1, hold_seconds=0.002, recheck_seconds=0.02)
    async with stream_gateway(log, broker, limits) as gateway, watching(gateway.url) as (client,):
        streams = []
        late: list[bytes] = []
        for step in range(300):
            made = log.append(S, dice.choice(["runtime.event", "turn.completed"]), turn_id=f"t{step}")
            if dice.random() < 0.8:
                late.append(made)
            if dice.random() < 0.1:
                late.append(dice.choice(late or [made]))
            if dice.random() < 0.3:
                dice.shuffle(late)
            while late and dice.random() < 0.7:
                broker.event(S, late.pop(0))
            if dice.random() < 0.05:
                after = dice.randint(0, log.last(S))
                streams.append((after, client.stream(S, after)))
            if dice.random() < 0.2:
                await asyncio.sleep(0)
            if dice.random() < 0.05:
                await asyncio.sleep(0.003)
        for after, stream in streams:
            await stream.sequence(log.last(S))
            assert_gapless(stream.ids, first=after + 1)


async def test_a_jump_of_many_pages_is_pulled_by_each_viewer_and_shared() -> None:
    log, broker = Log(page_bytes=32 * 1024), FakeBroker()
    log.append(S)
    async with stream_gateway(log, broker) as gateway, watching(gateway.url) as (client,):
        streams = [await client.stream(S, 1).opened() for _ in range(5)]
        for _ in range(500):
            log.append(S, pad=1000)
        broker.event(S, log.append(S))
        for stream in streams:
            await stream.sequence(502)
        commit(log, broker, 2)
        for stream in streams:
            await stream.sequence(504)
            assert_gapless(stream.ids, first=2)
        assert len(log.pages) < 3 * len(set(log.pages))


async def test_what_was_never_committed_is_not_shown_and_stops_nobody() -> None:
    log, broker = Log(), FakeBroker()
    log.append(S)
    limits = Limits(hold_seconds=0.001, heads_seconds=0.1)
    async with stream_gateway(log, broker, limits) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 1).opened()
        lie = log.append("other")
        for _ in range(2, 1000):
            lie = log.append("other")
        broker.event(S, lie.replace(b'"session_id":"other"', b'"session_id":"session"'))
        broker.event(S, b"no envelope")
        broker.event(S, b'{"sequence":"2"}')
        async with asyncio.timeout(5):
            while len(log.pages) < 50:
                await asyncio.sleep(0.01)
        commit(log, broker, 3)
        await stream.sequence(4)
        assert_gapless(stream.ids, first=2)


async def test_a_type_with_a_line_break_never_reaches_the_wire() -> None:
    """Somebody publishes an event whose type would end its frame; what is stored under that sequence is shown."""
    log, broker = Log(), FakeBroker()
    log.append(S)
    async with stream_gateway(log, broker, Limits(heads_seconds=60)) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 1).opened()
        for type_ in ("a\\nid: 99", "a\\r\\ndata: x", "a\\n\\nevent: b", "", "a b"):
            honest = log.append(S, "runtime.event")
            broker.event(S, honest.replace(b"runtime.event", type_.encode()))
            await stream.sequence(log.last(S))
        broker.live(S, "item.delta\nid: 99", T, item_id="i", index=0, attempt=1, text="x")
        broker.event(S, log.append(S))
        await stream.sequence(log.last(S))
        assert_gapless(stream.ids, first=2)
        assert {frame.event for frame in stream.committed} == {"runtime.event"}
        assert [frame.event for frame in stream.frames if not frame.committed] == ["stream.open"]


async def test_a_restored_store_sends_its_viewers_away() -> None:
    """Its epoch is another, and it may have lost events that they have seen."""
    log, broker = Log(), FakeBroker()
    for _ in range(5):
        log.append(S)
    async with stream_gateway(log, broker, Limits(heads_seconds=0.1)) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 0).opened()
        await stream.sequence(5)
        log.restore(S, 3)
        await stream.end()
        assert stream.frames[-1].event == "stream.closing"
        again = await client.stream(S, 5).opened()
        assert again.frames[0].json["epoch"] == 2
        assert (await again.event("stream.resync")).json == {"reason": "beyond_head", "last_sequence": 3}
        commit(log, broker, 1)
        await again.sequence(4)
