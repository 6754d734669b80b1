"""What a client is told: the first frame, cursors, ends, refusals, headers, comments."""

import asyncio

import pytest

from services.gateway.sse.hub import moments
from services.gateway.sse.limits import Limits
from tests.support.sse import assert_gapless
from tests.support.streaming import FakeBroker, Log, stream_gateway, watching

S = "session"
QUICK = Limits(attach_seconds=0.3, comment_seconds=0.2, recheck_seconds=0.02, heads_seconds=0.1)


async def test_d04_headers_and_the_first_frame() -> None:
    log, broker = Log(), FakeBroker()
    for _ in range(3):
        log.append(S)
    async with stream_gateway(log, broker) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 2, **{"Accept-Encoding": "gzip, br, zstd"}).opened()
        assert stream.status == 200
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.headers["cache-control"] == "no-cache, no-transform"
        assert stream.headers["x-accel-buffering"] == "no"
        assert "content-encoding" not in stream.headers
        assert "content-length" not in stream.headers
        first = stream.frames[0]
        assert (first.event, first.id) == ("stream.open", "2")
        assert first.json == {
            "session_id": S,
            "epoch": 1,
            "after": 2,
            "last_sequence": 3,
            "chat_status": "human",
            "active_turn_id": None,
        }
        assert 1000 <= stream.parser.retries[0] <= 3000
        await stream.sequence(3)


async def test_the_header_wins_over_the_query() -> None:
    log, broker = Log(), FakeBroker()
    for _ in range(9):
        log.append(S)
    async with stream_gateway(log, broker) as gateway, watching(gateway.url) as (client,):
        both = client.stream(f"{S}/events?after_sequence=1#", 7)
        query = client.stream(f"{S}/events?after_sequence=5#")
        for stream, after in ((both, 7), (query, 5)):
            await stream.sequence(9)
            assert_gapless(stream.ids, first=after + 1)


@pytest.mark.parametrize("cursor", ["-1", "x", "1.5", "0x10", " ", "9" * 40, "１"])
async def test_a_malformed_cursor_is_400(cursor: str) -> None:
    log, broker = Log(), FakeBroker()
    log.append(S)
    async with stream_gateway(log, broker) as gateway, watching(gateway.url) as (client,):
        answer = await client.http.get(f"/v1/sessions/{S}/events", params={"after_sequence": cursor})
        assert answer.status_code == 400
        assert answer.json()["code"] == "bad_cursor"


async def test_an_unknown_session_is_404() -> None:
    async with stream_gateway(Log(), FakeBroker()) as gateway, watching(gateway.url) as (client,):
        answer = await client.request("GET", "/v1/sessions/nobody/events")
        assert answer.status_code == 404
        assert gateway.hub.sessions == 0


async def test_a_cursor_beyond_the_head_is_told_the_truth() -> None:
    log, broker = Log(), FakeBroker()
    for _ in range(3):
        log.append(S)
    async with stream_gateway(log, broker) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 100).opened()
        resync = await stream.event("stream.resync")
        assert stream.frames[0].id == "100"
        assert resync.id == "3"
        assert resync.json == {"reason": "beyond_head", "last_sequence": 3}
        broker.event(S, log.append(S))
        await stream.sequence(4)
        assert stream.ids == [4]


async def test_r10_a_resume_around_the_end_of_a_turn_is_never_silent() -> None:
    log, broker = Log(), FakeBroker()
    log.append(S, "turn.started", turn_id="t")
    log.append(S, "turn.completed", turn_id="t")
    async with stream_gateway(log, broker) as gateway, watching(gateway.url) as (client,):
        before = await client.stream(S, 1).opened()
        await before.event("turn.completed", timeout=1)
        after = await client.stream(S, 2).opened(timeout=1)
        assert after.frames[0].json["chat_status"] == "human"
        assert after.frames[0].json["last_sequence"] == 2


async def test_a_closed_session_gives_what_is_left_and_then_204() -> None:
    log, broker = Log(), FakeBroker()
    log.append(S)
    async with stream_gateway(log, broker, QUICK) as gateway, watching(gateway.url) as (client,):
        open_ = await client.stream(S, 0).opened()
        broker.event(S, log.append(S, "session.closed", {"reason": "deleted"}))
        await open_.end()
        left = await client.stream(S, 1).opened()
        await left.end()
        for stream in (open_, left):
            assert [frame.event for frame in stream.frames[-2:]] == ["session.closed", "stream.closing"]
            assert stream.frames[-1].json == {"reason": "closed"}
            assert stream.frames[-1].id is None
        answer = await client.request("GET", f"/v1/sessions/{S}/events", last_event_id="2")
        assert answer.status_code == 204


async def test_no_stream_is_silent_for_longer_than_the_comment_interval() -> None:
    log, broker = Log(), FakeBroker()
    log.append(S)
    async with stream_gateway(log, broker, QUICK) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 0).opened()
        await stream.sequence(1)
        loop = asyncio.get_running_loop()
        start = loop.time()
        while stream.parser.comments < 3:
            await asyncio.sleep(0.01)
        assert loop.time() - start < 3 * 0.2 + 0.3


async def test_one_viewer_too_many_is_told_to_come_back() -> None:
    log, broker = Log(), FakeBroker()
    log.append(S)
    async with stream_gateway(log, broker, Limits(viewers=2)) as gateway, watching(gateway.url) as (client,):
        kept = [await client.stream(S, 0).opened() for _ in range(2)]
        assert [stream.frames[0].event for stream in kept] == ["stream.open"] * 2
        refused = await client.stream(S, 0).opened()
        await refused.end()
        assert refused.status == 200
        assert [(frame.event, frame.id) for frame in refused.frames] == [("stream.closing", None)]
        assert refused.frames[0].json == {"reason": "overloaded"}
        assert 5000 <= refused.parser.retries[0] <= 15000
        await kept[0].close()
        async with asyncio.timeout(5):
            while gateway.hub.full:
                await asyncio.sleep(0.01)
        await client.stream(S, 0).opened()


async def test_without_the_agent_service_a_client_is_told_to_come_back_and_open_streams_stay() -> None:
    log, broker = Log(), FakeBroker()
    log.append(S)
    async with stream_gateway(log, broker, QUICK) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 0).opened()
        await stream.sequence(1)
        log.away = True
        refused = await client.stream(S, 0).opened()
        assert refused.frames[0].json == {"reason": "overloaded"}
        made = log.append(S)
        log.append(S)
        broker.event(S, made)
        await stream.sequence(2)
        log.away = False
        await stream.sequence(3)
        assert not stream.ended


async def test_revocation_ends_the_streams_of_the_session() -> None:
    log, broker = Log(), FakeBroker()
    log.append(S)
    async with stream_gateway(log, broker) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 0).opened()
        await stream.sequence(1)
        broker.control(S, "revoked")
        await stream.end()
        assert stream.frames[-1].json == {"reason": "revoked"}


def test_d16_a_drain_has_its_moments_evenly_and_none_on_the_beat() -> None:
    """Two thousand over 25 s: eighty in each second, give or take the part that lies across."""
    made = moments(2_000, 25.0)
    assert made == sorted(made)
    assert all(25.0 * number / 2_000 <= moment < 25.0 * (number + 1) / 2_000 for number, moment in enumerate(made))
    a_second = [sum(1 for moment in made if second <= moment < second + 1) for second in range(25)]
    assert all(79 <= count <= 81 for count in a_second)
    assert made[-1] - made[0] > 20
    assert len({round(moment * 80 % 1, 6) for moment in made}) > 1_000
    assert moments(3, 0.0) == [0.0] * 3
    assert moments(0, 25.0) == []


async def test_drain_says_farewell_over_its_time_and_refuses_newcomers() -> None:
    log, broker = Log(), FakeBroker()
    log.append(S)
    loop = asyncio.get_running_loop()
    async with stream_gateway(log, broker, drain_seconds=1.0) as gateway, watching(gateway.url) as (client,):
        streams = [await client.stream(S, 0).opened() for _ in range(20)]
        ended: list[float] = []

        async def note(stream_end: float, index: int) -> None:
            await streams[index].end()
            ended.append(loop.time() - stream_end)

        start = loop.time()
        gateway.life.stop()
        assert not gateway.life.ready
        async with asyncio.TaskGroup() as tasks:
            for index in range(len(streams)):
                tasks.create_task(note(start, index))
            refused = await client.stream(S, 0).opened()
            assert refused.frames[0].json == {"reason": "draining"}
        await gateway.served
        assert loop.time() - start < 2.0
        assert max(ended) - min(ended) > 0.6
        for stream in streams:
            assert stream.frames[-1].event == "stream.closing"
            assert stream.frames[-1].json == {"reason": "draining"}
            assert stream.frames[-1].id is None
        assert len({retry for stream in streams for retry in stream.parser.retries[1:]}) > 10
