"""A session's subscription: overflow is a gap, an end is an end."""

import asyncio
from itertools import pairwise

import pytest

from infra.embedded import EmbeddedNats
from infra.nats.connection import open_broker
from infra.nats.notifier import open_notifier
from infra.nats.subjects import InvalidToken
from infra.nats.subscriber import NatsSubscriber
from tests.support.broker import ITEM, OTHER_SESSION, SESSION, Heard, broker_options, until


async def test_overflow_is_told_as_a_gap_after_what_it_lost(nats: EmbeddedNats) -> None:
    heard = Heard()
    async with (
        open_broker(broker_options(nats, "gateway", pending_messages=10)) as gateway,
        open_broker(broker_options(nats, "worker")) as worker,
        open_notifier(worker) as notifier,
    ):
        await gateway.connected()
        await NatsSubscriber(gateway).subscribe(SESSION, heard)
        for number in range(5_000):
            notifier.publish_live(SESSION, ITEM, b"%d" % number)
        await notifier.outbox.emptied()
        await gateway.flush()  # all of them were read by now, or dropped
        notifier.publish_live(SESSION, ITEM, b"last")
        await until(lambda: heard.of("live")[-1:] == [b"last"])
    numbers = [int(data) for data in heard.of("live")[:-1]]
    assert numbers == sorted(set(numbers))
    assert len(numbers) < 5_000
    # Every run of lost messages is followed by a gap before the end of what comes after it.
    assert heard.of("gap")
    holes = [at for at, (before, after) in enumerate(pairwise(numbers)) if after != before + 1]
    assert len(holes) <= len(heard.of("gap"))


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
        await until(lambda: len(client._subs) == 2)
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
        await until(lambda: not client._subs and asyncio.all_tasks() == tasks)


@pytest.mark.parametrize("name", ["*", ">", "a.b", "a b", "", "a" * 65])
async def test_no_wildcard_gets_into_a_subject(nats: EmbeddedNats, name: str) -> None:
    async with open_broker(broker_options(nats, "gateway")) as gateway:
        with pytest.raises(InvalidToken):
            await NatsSubscriber(gateway).subscribe(type(SESSION)(name), Heard())
