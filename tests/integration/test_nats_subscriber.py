"""A session's subscription: overflow is a gap, an end is an end."""

import asyncio

import pytest
from structlog.testing import capture_logs

from infra.embedded import EmbeddedNats
from infra.nats.connection import open_broker
from infra.nats.notifier import open_notifier
from infra.nats.subjects import InvalidToken
from infra.nats.subscriber import NatsSubscriber
from tests.support.broker import ITEM, OTHER_SESSION, SESSION, Heard, broker_options, until


async def test_a_burst_arrives_whole(nats: EmbeddedNats) -> None:
    heard = Heard()
    async with (
        open_broker(broker_options(nats, "gateway")) as gateway,
        open_broker(broker_options(nats, "worker")) as worker,
        open_notifier(worker) as notifier,
    ):
        await gateway.connected()
        await NatsSubscriber(gateway).subscribe(SESSION, heard)
        for number in range(20_000):
            notifier.publish_live(SESSION, ITEM, b"%d" % number)
        await until(lambda: len(heard.all) == 20_000)
    assert heard.of("live") == [b"%d" % number for number in range(20_000)]


async def test_who_cannot_follow_is_told_a_gap(nats: EmbeddedNats) -> None:
    """The broker buffers 64 MB for a client that does not read, then ends its connection."""
    heard = Heard()
    async with (
        open_broker(broker_options(nats, "gateway")) as gateway,
        open_broker(broker_options(nats, "worker", outbox_bytes=200 << 20)) as worker,
        open_notifier(worker) as notifier,
    ):
        client = await gateway.connected()
        await NatsSubscriber(gateway).subscribe(SESSION, heard)
        client._transport._io_writer.transport.pause_reading()  # type: ignore[union-attr]
        for number in range(100):
            notifier.publish_live(SESSION, ITEM, b"%d" % number + b"x" * 1_000_000)
        await notifier.outbox.emptied()
        client._transport._io_writer.transport.resume_reading()  # type: ignore[union-attr]
        await until(lambda: bool(heard.of("gap")))
        notifier.publish_live(SESSION, ITEM, b"last")
        await until(lambda: heard.of("live")[-1:] == [b"last"])
        assert len(heard.of("live")) < 101
        assert gateway.client is not client


async def test_a_fault_of_one_listener_harms_nobody_else(nats: EmbeddedNats) -> None:
    class Broken(Heard):
        def on_control(self, message: bytes) -> None:
            super().on_control(message)
            raise RuntimeError(message)

    broken, heard = Broken(), Heard()
    with capture_logs() as logs:
        async with (
            open_broker(broker_options(nats, "gateway")) as gateway,
            open_broker(broker_options(nats, "agent")) as agent,
            open_notifier(agent) as notifier,
        ):
            client = await gateway.connected()
            await NatsSubscriber(gateway).subscribe(SESSION, broken)
            await NatsSubscriber(gateway).subscribe(SESSION, heard)
            notifier.control(SESSION, b"private text")
            notifier.control(SESSION, b"2")
            await until(lambda: len(heard.all) == len(broken.all) == 2)
            assert gateway.client is client
    assert [line["error"] for line in logs if line["event"] == "broker error"] == ["RuntimeError"] * 2
    assert "private text" not in repr(logs)


async def test_nothing_comes_after_close_and_others_go_on(nats: EmbeddedNats) -> None:
    closed, open_one, other = Heard(), Heard(), Heard()
    async with (
        open_broker(broker_options(nats, "gateway")) as gateway,
        open_broker(broker_options(nats, "agent")) as agent,
        open_notifier(agent) as notifier,
    ):
        client = await gateway.connected()
        subscriber = NatsSubscriber(gateway)
        subscription = await subscriber.subscribe(SESSION, closed)
        await subscriber.subscribe(SESSION, open_one)
        await subscriber.subscribe(OTHER_SESSION, other)
        notifier.control(SESSION, b"1")
        await until(lambda: bool(closed.all) and bool(open_one.all))
        subscription.close()
        subscription.close()
        notifier.control(SESSION, b"2")
        notifier.control(OTHER_SESSION, b"3")
        await until(lambda: bool(other.all))
        assert closed.of("control") == [b"1"]
        assert open_one.of("control") == [b"1", b"2"]
        await until(lambda: client.heard == 2)
        await nats.restart()
        await until(lambda: open_one.of("gap") == other.of("gap") == [b""])
        assert closed.all == [("control", b"1")]


async def test_a_thousand_openings_leave_nothing(nats: EmbeddedNats) -> None:
    async with open_broker(broker_options(nats, "gateway")) as gateway:
        client = await gateway.connected()
        tasks, subscriber = asyncio.all_tasks(), NatsSubscriber(gateway)
        for number in range(1_000):
            subscription = await subscriber.subscribe(SESSION, Heard())
            if number % 2:
                await asyncio.sleep(0)
            subscription.close()
        opening = asyncio.create_task(subscriber.subscribe(SESSION, Heard()))
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await until(lambda: client.heard == 0 and asyncio.all_tasks() == tasks)


@pytest.mark.parametrize("name", ["*", ">", "a.b", "a b", "", "a" * 65])
async def test_no_wildcard_gets_into_a_subject(nats: EmbeddedNats, name: str) -> None:
    async with open_broker(broker_options(nats, "gateway")) as gateway:
        with pytest.raises(InvalidToken):
            await NatsSubscriber(gateway).subscribe(type(SESSION)(name), Heard())
