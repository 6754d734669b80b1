"""Temporary frames: shown in order, without id, never a delta with a hole, never a ghost."""

import asyncio
from collections.abc import Sequence as Many

import msgspec

from services.gateway.agent_client import SessionHead
from services.gateway.sse.limits import Limits
from services.gateway.sse.live import Frame, decode_frame
from services.gateway.sse.ports import OpenItemsUnavailable
from tests.support.client import Client
from tests.support.sse import Stream
from tests.support.streaming import FakeBroker, Log, stream_gateway, watching

S = "session"
T = "turn"


def delta(broker: FakeBroker, index: int, item: str = "i", attempt: int = 1, turn: str = T) -> None:
    broker.live(S, "item.delta", turn, item_id=item, index=index, attempt=attempt, frame=index + 2, text=f"{index} ")


def start(broker: FakeBroker, item: str = "i", attempt: int = 1, turn: str = T) -> None:
    broker.live(S, "item.started", turn, item_id=item, kind="text", attempt=attempt, frame=1)


def commit(log: Log, broker: FakeBroker, type_: str, turn: str | None = T, **data: object) -> None:
    broker.event(S, log.append(S, type_, data, turn_id=turn))


def seen(stream: Stream) -> list[str]:
    """What came after `stream.open`: index of deltas, event names of the rest."""
    frames = [frame for frame in stream.frames if frame.event != "stream.open"]
    return [str(frame.json["data"].get("index", frame.event)) for frame in frames]


async def mark(log: Log, broker: FakeBroker, *streams: Stream) -> None:
    """Everything before this has arrived."""
    commit(log, broker, "runtime.event")
    for stream in streams:
        await stream.sequence(log.last(S))


async def test_frames_come_in_order_with_the_events_and_without_id() -> None:
    log, broker = Log(), FakeBroker()
    commit(log, broker, "turn.started", attempt=1)
    async with stream_gateway(log, broker) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 1).opened()
        start(broker)
        delta(broker, 0)
        commit(log, broker, "runtime.event")
        delta(broker, 1)
        commit(log, broker, "item.completed", item_id="i", attempt=1)
        await stream.sequence(3)
        assert seen(stream) == ["item.started", "0", "runtime.event", "1", "item.completed"]
        assert all(frame.id is None for frame in stream.frames if frame.event in ("item.started", "item.delta"))


async def test_who_comes_in_mid_item_gets_a_snapshot_and_exactly_what_follows() -> None:
    log, broker = Log(), FakeBroker()
    commit(log, broker, "turn.started", attempt=1)
    async with stream_gateway(log, broker) as gateway, watching(gateway.url) as (client,):
        early = await client.stream(S, 1).opened()
        start(broker)
        delta(broker, 0)
        await early.until(lambda: len(early.frames) == 3)
        late = await joined(client, gateway.hub.viewers)
        delta(broker, 1)
        start(broker, "j")
        delta(broker, 0, "j")
        delta(broker, 2)
        commit(log, broker, "item.completed", item_id="i", attempt=1)
        delta(broker, 1, "j")
        await mark(log, broker, early, late)
        whole = ["item.started", "0", "1", "item.started", "0", "2", "item.completed", "1", "runtime.event"]
        assert seen(early) == whole
        assert seen(late) == ["item.snapshot", *whole[2:]]
        snapshot = late.frames[1]
        assert snapshot.id is None
        assert snapshot.json["data"] == {
            "item_id": "i",
            "kind": "text",
            "attempt": 1,
            "next_index": 1,
            "text": "0 ",
            "frames": {"runs": [[1, 2]], "cuts": [2]},
        }
        assert gateway.hub.room.used > 0
        commit(log, broker, "turn.completed", attempt=1)
        await early.sequence(log.last(S))
        assert gateway.hub.room.used == 0


def roll_up(broker: FakeBroker, next_index: int, item: str = "i") -> None:
    text = "".join(f"{index} " for index in range(next_index))
    frames = {"runs": [[1, next_index + 1]], "cuts": [2] * next_index}
    said = {"item_id": item, "kind": "text", "attempt": 1, "next_index": next_index, "text": text, "frames": frames}
    broker.live(S, "item.snapshot", T, **said)


async def test_a_roll_up_is_shown_only_to_those_who_lack_something() -> None:
    """It closes a hole, with what came behind the hole; where there is none it is kept for who joins later."""
    log, broker = Log(), FakeBroker()
    commit(log, broker, "turn.started", attempt=1)
    async with stream_gateway(log, broker) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 1).opened()
        start(broker)
        delta(broker, 0)
        roll_up(broker, 1)
        for index in (1, 3, 4, 2, 5, 7, 8):
            delta(broker, index)
        roll_up(broker, 7)
        delta(broker, 9)
        roll_up(broker, 10)
        roll_up(broker, 3)
        late = await client.stream(S, 1).opened()
        await late.until(lambda: len(late.frames) > 1)
        delta(broker, 10)
        await mark(log, broker, stream, late)
        shown = ["item.started", *"012345", "item.snapshot", "7", "8", "9", "10", "runtime.event"]
        assert seen(stream) == shown
        assert seen(late) == ["item.snapshot", "10", "runtime.event"]
        assert late.frames[1].json["data"]["next_index"] == 10


async def test_texts_that_are_kept_for_joiners_are_bounded() -> None:
    """Beyond the room those who are there go on; who joins waits for the next roll-up or the completion."""
    log, broker = Log(), FakeBroker()
    commit(log, broker, "turn.started", attempt=1)
    limits = Limits(open_items_bytes=300)
    async with stream_gateway(log, broker, limits) as gateway, watching(gateway.url) as (client,):
        early = await client.stream(S, 1).opened()
        start(broker)
        for index in range(5):
            delta(broker, index)
        assert gateway.hub.room.used == 0
        late = await client.stream(S, 1).opened()
        delta(broker, 5)
        commit(log, broker, "item.completed", item_id="i", attempt=1)
        await mark(log, broker, early, late)
        assert seen(early) == ["item.started", *"012345", "item.completed", "runtime.event"]
        assert seen(late) == ["item.completed", "runtime.event"]


async def test_who_joins_sees_the_newest_progress() -> None:
    log, broker = Log(), FakeBroker()
    commit(log, broker, "turn.started", attempt=1)
    async with stream_gateway(log, broker) as gateway, watching(gateway.url) as (client,):
        early = await client.stream(S, 1).opened()
        for fraction in (0.1, 0.2):
            broker.live(S, "tool.progress", T, item_id="i", tool_call_id="c", attempt=1, fraction=fraction)
        await early.until(lambda: len(early.frames) == 3)
        late = await client.stream(S, 1).opened()
        await late.event("tool.progress")
        assert [frame.json["data"]["fraction"] for frame in late.frames[1:]] == [0.2]


async def joined(client: Client, viewers: int) -> Stream:
    stream = await client.stream(S, 1).opened()
    assert viewers == 1
    return stream


async def test_a_delta_behind_a_hole_is_not_shown() -> None:
    log, broker = Log(), FakeBroker()
    commit(log, broker, "turn.started", attempt=1)
    async with stream_gateway(log, broker) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 1).opened()
        start(broker)
        for index in (0, 1, 1, 3, 4):
            delta(broker, index)
        delta(broker, 0, "unknown")
        await mark(log, broker, stream)
        assert seen(stream) == ["item.started", "0", "1", "runtime.event"]


async def test_ghosts_are_dropped() -> None:
    """Frames of completed items, of older attempts, of turns that are over."""
    log, broker = Log(), FakeBroker()
    commit(log, broker, "turn.started", attempt=1)
    async with stream_gateway(log, broker) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 1).opened()
        start(broker)
        commit(log, broker, "item.completed", item_id="i", attempt=1)
        delta(broker, 0)
        start(broker)
        start(broker, "j")
        commit(log, broker, "turn.started", attempt=2)
        delta(broker, 0, "j")
        start(broker, "k", attempt=1)
        broker.live(S, "item.snapshot", T, item_id="l", attempt=2, next_index=3, text="abc")
        start(broker, "l", attempt=2)
        commit(log, broker, "turn.completed", attempt=2)
        delta(broker, 0, "l", attempt=2)
        start(broker, "m", attempt=2)
        await mark(log, broker, stream)
        expected = ["item.started", "item.completed", "item.started", "turn.started", "item.snapshot", "turn.completed"]
        assert seen(stream) == [*expected, "runtime.event"]


async def test_a_tools_progress_is_shown_until_its_result_is_final() -> None:
    log, broker = Log(), FakeBroker()
    commit(log, broker, "turn.started", attempt=1)
    async with stream_gateway(log, broker) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 1).opened()
        commit(log, broker, "item.completed", item_id="i", attempt=1, kind="tool_call")
        broker.live(S, "tool.progress", T, item_id="i", tool_call_id="c", attempt=1, fraction=0.5)
        commit(log, broker, "tool_result.snapshot", item_id="i", tool_call_id="c", attempt=1, final=False)
        broker.live(S, "tool.progress", T, item_id="i", tool_call_id="c", attempt=1, fraction=0.7)
        commit(log, broker, "tool_result.snapshot", item_id="i", tool_call_id="c", attempt=1, final=True)
        broker.live(S, "tool.progress", T, item_id="i", tool_call_id="c", attempt=1, fraction=0.9)
        await mark(log, broker, stream)
        result = "tool_result.snapshot"
        assert seen(stream) == ["item.completed", "tool.progress", result, "tool.progress", result, "runtime.event"]


async def test_a_short_jump_costs_no_delta() -> None:
    log, broker = Log(), FakeBroker()
    commit(log, broker, "turn.started", attempt=1)
    async with stream_gateway(log, broker, Limits(hold_seconds=0.05)) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 1).opened()
        start(broker)
        delta(broker, 0)
        log.append(S)
        commit(log, broker, "runtime.event")
        delta(broker, 1)
        commit(log, broker, "runtime.event")
        delta(broker, 2)
        await stream.until(lambda: seen(stream)[-1:] == ["2"])
        event = "runtime.event"
        assert seen(stream) == ["item.started", "0", event, event, "1", event, "2"]


class Kept:
    """What somebody else keeps of open items; the first answers lack what was published just now, or there is none
    (None)."""

    def __init__(self, *answers: int | None) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def read(self, session_id: str, early: Many[tuple[Frame, bytes]]) -> list[tuple[Frame, bytes]]:
        self.asked += 1
        count = self.answers.pop(0)
        if count is None:
            raise OpenItemsUnavailable
        frames: list[tuple[str, dict[str, object]]] = [("item.started", {"kind": "text", "frame": 1})]
        frames += [("item.delta", {"index": i, "frame": i + 2, "text": f"{i} "}) for i in range(count)]
        ids = {"item_id": "i", "attempt": 1}
        raws = [
            msgspec.json.encode({"session_id": S, "type": type_, "turn_id": T, "data": {**ids, **data}})
            for type_, data in frames
        ]
        return [*((decode_frame(raw), raw) for raw in raws), *early]


async def test_a_hole_is_closed_by_what_others_kept_with_three_looks_at_most() -> None:
    for answers, shown in (((2, 2, 4), ["item.snapshot", "6", "item.completed"]), ((2, 2, 2), ["item.completed"])):
        log, broker, kept = Log(), FakeBroker(), Kept(*answers)
        commit(log, broker, "turn.started", attempt=1)
        async with (
            stream_gateway(log, broker, open_items=kept) as gateway,
            watching(gateway.url) as (client,),
        ):
            stream = await client.stream(S, 1).opened()
            start(broker)
            for index in (0, 1, 4, 5):
                delta(broker, index)
            while kept.asked < 3:
                await asyncio.sleep(0.01)
            if len(shown) > 1:
                await stream.event("item.snapshot")
            delta(broker, 6)
            commit(log, broker, "item.completed", item_id="i", attempt=1)
            await stream.sequence(2)
            assert seen(stream) == ["item.started", "0", "1", *shown]
            assert kept.asked == 3
            if len(shown) > 1:
                snapshot = next(frame for frame in stream.frames if frame.event == "item.snapshot")
                assert snapshot.json["data"]["text"] == "0 1 2 3 4 5 "


class Running(Log):
    """A log in which a turn is active."""

    def _head(self, session: str) -> SessionHead:
        return SessionHead(self.last(session), "open", T, "running", 0, "agent", False)


async def test_who_joins_while_the_broker_is_slow_is_shown_a_silent_item_with_the_next_head() -> None:
    """No roll-up comes of it, and nobody tells of a gap."""
    log, broker, kept = Running(), FakeBroker(), Kept(None, None, 2)
    commit(log, broker, "turn.started", attempt=1)
    limits = Limits(heads_seconds=0.1)
    async with (
        stream_gateway(log, broker, limits, open_items=kept) as gateway,
        watching(gateway.url) as (client,),
    ):
        stream = await client.stream(S, 1).opened()
        await stream.event("item.snapshot")
        assert [frame.json["data"]["text"] for frame in stream.frames if frame.event == "item.snapshot"] == ["0 1 "]
        assert kept.asked == 3
