"""Whatever somebody publishes, or has come into the log: viewers get 1..n, and nothing that stands still or grows."""

import asyncio
import random

import msgspec
import pytest

from domain.events.envelope import envelope
from domain.ids import Micros
from services.gateway.sse.limits import Limits
from tests.support.sse import assert_gapless
from tests.support.streaming import FakeBroker, Log, stream_gateway, watching

S, T = "session", "turn"
DEEP = b"[" * 5_000 + b"]" * 5_000

EVENTS = (
    b"", b"null", b"\xff\xfe", b"{", b'{"sequence":2}', b'{"sequence":"2","type":"a"}', b'{"sequence":2,"type":7}',
    b'{"sequence":-1,"type":"a"}', b'{"sequence":0,"type":"a"}', b'{"sequence":1e3,"type":"a"}',
    b'{"sequence":99999999999999999999999,"type":"a"}', b'{"sequence":9223372036854775807,"type":"turn.completed"}',
    b'{"sequence":3,"type":"a.b","data":%b}' % DEEP, b'{"sequence":2,"type":"item.completed","turn_id":"t","data":7}',
    b'{"sequence":2,"type":"' + b"a" * 5_000 + b'","data":{}}',
)  # fmt: skip

FRAMES = tuple(
    b'{"session_id":"session","type":"%b","turn_id":"turn","data":%b}' % (type_, data)
    for type_ in (b"item.started", b"item.delta", b"item.snapshot", b"tool.progress", b"x.y", b"")
    for data in (
        b"{}", b"7", b"null", DEEP, b'{"item_id":""}', b'{"item_id":"i","index":-1}', b'{"item_id":"i","index":1e9}',
        b'{"item_id":"i","index":9223372036854775807,"text":"x","frame":1,"attempt":1}',
        b'{"item_id":"i","next_index":-5,"attempt":-1,"text":7}', b'{"item_id":"i","next_index":99,"attempt":1}',
        b'{"item_id":"i","kind":"text","attempt":99999999999999999999,"frame":1}',
        b'{"item_id":"i","index":0,"attempt":1,"text":{"a":' + DEEP + b"}}",
    )
)  # fmt: skip


async def test_nothing_that_is_published_stops_or_doubles_an_event() -> None:
    log, broker, dice = Log(page_bytes=4_000), FakeBroker(), random.Random(5)
    log.append(S, "turn.started", {"attempt": 1}, turn_id=T)
    limits = Limits(heads_seconds=0.1, hold_seconds=0.001, recheck_seconds=0.01)
    async with stream_gateway(log, broker, limits) as gateway, watching(gateway.url) as (client,):
        streams = [await client.stream(S, 0).opened()]
        hostile = [*((False, event) for event in EVENTS), *((True, frame) for frame in FRAMES)] * 2
        dice.shuffle(hostile)
        for number, (live, data) in enumerate(hostile):
            for listener in list(broker._listeners[S]):
                (listener.on_live if live else listener.on_event)(data)
            if number % 5 == 0:
                broker.event(S, log.append(S))
            if number % 40 == 0:
                streams.append(client.stream(S, 0))
                await asyncio.sleep(0.01)
        for stream in streams:
            await stream.sequence(log.last(S))
            assert_gapless(stream.ids)
        broker.event(S, log.append(S, "turn.completed", turn_id=T))
        await streams[0].sequence(log.last(S), timeout=5)
        assert gateway.hub.room.used == 0


@pytest.mark.parametrize("published", [True, False])
async def test_a_committed_event_that_nobody_can_read_passes(published: bool) -> None:
    """Nested deeper than a decoder goes: live it is fetched from the store, and there it is bytes."""
    log, broker = Log(), FakeBroker()
    log.append(S)
    limits = Limits(heads_seconds=0.1, recheck_seconds=0.01)
    async with stream_gateway(log, broker, limits) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 0).opened()
        await stream.sequence(1)
        for type_ in ("runtime.event", "item.completed", "turn.started"):
            sequence = log.last(S) + 1
            deep = envelope(S, sequence, f"event-{sequence}", type_, 1, T, Micros(0), b'{"payload":%b}' % DEEP)
            log._sessions[S].append((type_, deep))
            if published:
                broker.event(S, deep)
            broker.event(S, log.append(S))
            await stream.sequence(log.last(S))
        late = await client.stream(S, 0).opened()
        await late.sequence(log.last(S))
        assert_gapless(stream.ids)
        assert_gapless(late.ids)


async def test_ten_thousand_open_items_of_one_session_are_bounded() -> None:
    """More items than anybody would open: what is kept of them has an end, and events go on."""
    log, broker = Log(), FakeBroker()
    log.append(S, "turn.started", {"attempt": 1}, turn_id=T)
    limits = Limits(open_items_bytes=1 << 20)
    async with stream_gateway(log, broker, limits) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 0).opened()
        await stream.sequence(1)
        for number in range(10_000):
            ids = {"item_id": f"i{number}", "attempt": 1}
            broker.live(S, "item.started", T, **ids, kind="text", frame=number * 2)
            broker.live(S, "item.delta", T, **ids, index=0, frame=number * 2 + 1, text="x" * 200)
            if number % 500 == 0:
                broker.event(S, log.append(S))
                await stream.sequence(log.last(S))
        assert 0 < gateway.hub.room.used <= 1 << 20
        joined = await client.stream(S, 0).opened()
        broker.event(S, log.append(S))
        await joined.sequence(log.last(S))
        assert sum(frame.event == "item.snapshot" for frame in joined.frames) <= 1_024
        assert_gapless(joined.ids)
        assert_gapless(stream.ids)
        broker.event(S, log.append(S, "turn.completed", turn_id=T))
        await joined.sequence(log.last(S))
        assert gateway.hub.room.used == 0


def test_msgspec_says_how_deep_it_goes() -> None:
    """What the above relies on: no crash, but an exception of Python's."""
    with pytest.raises(RecursionError):
        msgspec.json.decode(DEEP)
