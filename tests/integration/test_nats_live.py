"""The frames of open items, as one finds them who joins in mid-item."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from domain.ids import SessionId
from infra.embedded import EmbeddedNats
from infra.nats.connection import BrokerConnection, open_broker
from infra.nats.live import LiveFrame, LiveReader, LiveUnavailable, open_live_reader
from infra.nats.notifier import NatsNotifier, open_notifier
from infra.nats.streams import Streams, open_streams
from tests.support.broker import ITEM, OTHER_ITEM, OTHER_SESSION, SESSION, broker_options, until
from tests.support.waiting import eventually


@dataclass
class Stage:
    """A worker that publishes and a gateway that reads."""

    worker: BrokerConnection
    gateway: BrokerConnection
    streams: Streams
    notifier: NatsNotifier
    reader: LiveReader

    async def stored(self, messages: int) -> None:
        """Waits until LIVE holds so many messages: core publishes are stored a moment later."""

        async def holds() -> bool:
            info = await self.worker.client.jetstream().stream_info("TURNLOG_LIVE")
            return info.state.messages == messages

        await eventually(holds, f"{messages} messages in LIVE")


@pytest.fixture
async def stage(nats: EmbeddedNats) -> AsyncIterator[Stage]:
    async with (
        open_broker(broker_options(nats, "worker")) as worker,
        open_broker(broker_options(nats, "gateway")) as gateway,
        open_streams(worker) as streams,
        open_notifier(worker) as notifier,
        open_live_reader(gateway) as reader,
    ):
        await streams.ready()
        await gateway.connected()
        yield Stage(worker, gateway, streams, notifier, reader)


async def test_a_snapshot_stands_for_what_came_before_it(stage: Stage) -> None:
    assert await stage.reader.open_frames(SESSION) == []
    for number in range(5):
        stage.notifier.publish_live(SESSION, ITEM, b"a%d" % number)
        stage.notifier.publish_live(SESSION, OTHER_ITEM, b"b%d" % number)
    stage.notifier.publish_snapshot(SESSION, ITEM, b"A")
    stage.notifier.publish_live(SESSION, ITEM, b"a5")
    stage.notifier.publish_live(OTHER_SESSION, ITEM, b"c")
    await stage.stored(8)
    frames = await stage.reader.open_frames(SESSION)
    assert [frame for frame in frames if frame.item_id == ITEM] == [
        LiveFrame(ITEM, b"A", snapshot=True),
        LiveFrame(ITEM, b"a5", snapshot=False),
    ]
    assert [frame.frame for frame in frames if frame.item_id == OTHER_ITEM] == [b"b%d" % number for number in range(5)]
    assert [frame.frame for frame in await stage.reader.open_frames(OTHER_SESSION)] == [b"c"]


async def test_a_completed_item_is_gone_at_once_and_leaves_nothing(stage: Stage) -> None:
    for number in range(300):
        stage.notifier.publish_live(SESSION, ITEM, b"a%d" % number)
        stage.notifier.publish_live(SESSION, OTHER_ITEM, b"b")
    stage.notifier.clear_live(SESSION, ITEM)
    stage.notifier.clear_live(SESSION, OTHER_ITEM)
    stage.notifier.publish_live(SESSION, OTHER_ITEM, b"late")
    await stage.notifier.outbox.emptied()
    await stage.stored(3)
    assert await stage.reader.open_frames(SESSION) == [LiveFrame(OTHER_ITEM, b"late", snapshot=False)]
    await stage.stored(1)


async def test_many_frames_come_in_pages_in_order(stage: Stage) -> None:
    for number in range(1_234):
        stage.notifier.publish_live(SESSION, ITEM, b"%d" % number)
    for number in range(6):
        stage.notifier.publish_live(SESSION, OTHER_ITEM, b"%d" % number + b"x" * (1 << 20))
    await stage.stored(1_240)
    frames = await stage.reader.open_frames(SESSION)
    assert [int(frame.frame) for frame in frames if frame.item_id == ITEM] == list(range(1_234))
    assert [frame.frame[:1] for frame in frames if frame.item_id == OTHER_ITEM] == [b"%d" % n for n in range(6)]


async def test_readers_at_once_get_their_own_answers(stage: Stage, nats: EmbeddedNats) -> None:
    sessions = [SessionId(f"{SESSION[:-3]}{number:03}") for number in range(40)]
    for session_id in sessions:
        for number in range(10):
            stage.notifier.publish_live(session_id, ITEM, session_id[-3:].encode() + b"-%d" % number)
    await stage.stored(400)
    async with (
        open_broker(broker_options(nats, "gateway")) as second_gateway,
        open_live_reader(second_gateway) as second,
    ):
        await second_gateway.connected()
        readers = (stage.reader, second)
        answers = await asyncio.gather(*(reader.open_frames(name) for reader in readers for name in sessions))
    for session_id, frames in zip(sessions * 2, answers, strict=True):
        assert [frame.frame for frame in frames] == [session_id[-3:].encode() + b"-%d" % n for n in range(10)]


async def test_without_the_stream_nothing_is_open(nats: EmbeddedNats) -> None:
    async with open_broker(broker_options(nats, "gateway")) as gateway, open_live_reader(gateway) as reader:
        await gateway.connected()
        assert await reader.open_frames(SESSION) == []


async def test_a_broker_that_is_away_is_told_and_comes_back(stage: Stage, nats: EmbeddedNats) -> None:
    await nats.stop()
    with pytest.raises(LiveUnavailable):
        await stage.reader.open_frames(SESSION)
    await until(lambda: not stage.streams.are_ready and not stage.gateway.is_connected)
    await nats.start()
    await stage.streams.ready()
    await stage.gateway.connected()
    stage.notifier.publish_live(SESSION, ITEM, b"new")
    await stage.stored(1)  # LIVE was in memory
    assert await stage.reader.open_frames(SESSION) == [LiveFrame(ITEM, b"new", snapshot=False)]
