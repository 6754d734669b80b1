"""Refresh in mid-sentence: whoever joins sees what there is and goes on exactly there (P01, P05, P08)."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from infra.embedded import EmbeddedNats
from tests.support.databases import Databases
from tests.support.delivery import DeliveryStand, delivery_stand
from tests.support.reducer import view
from tests.support.speaking import Speaker
from tests.support.sse import Stream

PIECES = ["漢字", "e\u0301", "👩", "\u200d👧", "\r\n", "\r", "\n\n", " plain ", "ก็", "🇩", "🇪", '"\\', "\u2028", "id: 9"]


@pytest.fixture
async def pair(databases: Databases, nats: EmbeddedNats) -> AsyncIterator[DeliveryStand]:
    async with delivery_stand(databases, nats, gateways=2) as made:
        yield made


async def until_shown(stream: Stream, speaker: Speaker, timeout: float = 5.0) -> None:
    """Everything said so far is on that viewer's screen."""
    await stream.until(lambda: view(stream.frames).text() == speaker.text, timeout, f"{len(speaker.pieces)} pieces")


@pytest.mark.timeout(60)
async def test_p01_refresh_after_each_of_200_frames(pair: DeliveryStand) -> None:
    """At one gateway some stay while others come; at the other one viewer comes anew each time and is the only one."""
    writer = await pair.session()
    ann, bob = pair.client(0), pair.client(1)
    await writer.start()
    speaker = Speaker(writer, pair.notifier)
    staying: list[Stream] = []
    for number in range(200):
        await speaker.say(PIECES[number % len(PIECES)])
        if number % 20 == 0:
            staying.append(ann.stream(writer.session, (0, 3)[number % 40 == 0]))
        fresh = (ann, bob)[number % 2].stream(writer.session, 0)
        await until_shown(fresh, speaker)
        await fresh.close()
    for stream in staying:
        await until_shown(stream, speaker)
    await speaker.end()
    await writer.finish()
    (message,) = [one for one in await ann.messages(writer.session) if one["role"] == "assistant"]
    assert "".join(part["text"] for part in message["parts"]) == speaker.text
    for stream in staying:
        await stream.event("turn.completed")
        (item,) = view(stream.frames).items.values()
        assert item.text == item.shown == speaker.text
        assert view(stream.frames).snapshots <= 1
    for gateway in pair.gateways:
        assert gateway.hub.room.used == 0


async def test_p05_a_deep_link_into_a_running_turn_is_live_within_a_second(pair: DeliveryStand) -> None:
    writer = await pair.session()
    await writer.start()
    speaker = Speaker(writer, pair.notifier)
    for piece in PIECES:
        await speaker.say(piece)
    began = asyncio.get_running_loop().time()
    stream = pair.client(1).stream(writer.session, 0)
    await until_shown(stream, speaker)
    await speaker.say("and on")
    await until_shown(stream, speaker)
    assert asyncio.get_running_loop().time() - began < 1.0
    assert view(stream.frames).snapshots == 1


async def test_what_was_missed_while_the_broker_was_away_is_shown_when_it_is_back(pair: DeliveryStand) -> None:
    """Nothing more is said after the reconnect, so only the open item read again can tell."""
    writer = await pair.session()
    await writer.start()
    speaker = Speaker(writer, pair.notifier)
    await speaker.say("before ")
    stream = pair.client(0).stream(writer.session, 0)
    await until_shown(stream, speaker)
    await pair.gateways[0].broker.client.close()
    for piece in PIECES:
        await speaker.say(piece)
    await until_shown(stream, speaker)
    await speaker.say(" after")
    await until_shown(stream, speaker)
    await speaker.end()
    await writer.finish()
    await stream.event("turn.completed")
    assert view(stream.frames).text() == speaker.text


async def test_ghosts_of_the_broker_are_not_shown(pair: DeliveryStand) -> None:
    """LIVE still holds an item that is completed, one of an older attempt and one of a turn that is over."""
    writer = await pair.session()
    await writer.start()
    over = Speaker(writer, pair.notifier)
    await over.say("of a turn that is over")
    await writer.finish()
    await writer.start()
    for item, attempt in (("old", 0), ("completed", 1)):
        writer.show(pair.notifier, "item.started", item, kind="text", frame=1, attempt=attempt)
        writer.show(pair.notifier, "item.delta", item, index=0, frame=2, text="ghost", attempt=attempt)
    await writer.say("whole", "completed")
    speaker = Speaker(writer, pair.notifier)
    await speaker.say("alive")
    stream = await pair.client(1).stream(writer.session, 0).opened()
    await until_shown_last(stream, "alive")
    assert [item.text for item in view(stream.frames).items.values()] == ["whole", "alive"]
    assert view(stream.frames).snapshots == 1


async def until_shown_last(stream: Stream, text: str) -> None:
    await stream.until(lambda: view(stream.frames).text().endswith(text), what=text)


async def test_a_session_with_ten_thousand_open_items_can_be_joined(pair: DeliveryStand) -> None:
    """More subjects than anybody would have: the broker is asked for so many pages and no more, and events go on."""
    writer = await pair.session()
    await writer.start()
    for number in range(10_000):
        writer.show(pair.notifier, "item.started", f"item-{number}", kind="text", frame=number + 1)
        if number % 1_000 == 999:
            await pair.notifier.outbox.emptied()
    streams = [pair.client(gateway).stream(writer.session, 0) for gateway in (0, 1)]
    for stream in streams:
        await stream.event("item.snapshot", timeout=15)
    await writer.append(3)
    await writer.finish()
    for stream in streams:
        await stream.event("turn.completed")
        assert 0 < view(stream.frames).snapshots <= 1_024
    for gateway in pair.gateways:
        assert gateway.hub.room.used == 0


@pytest.mark.timeout(180)
async def test_p01_refreshed_again_and_again_under_load(pair: DeliveryStand) -> None:
    """Four speak at once; of each, a viewer comes anew all the time, at either gateway in turn, and every fifth stays.
    Whatever any of them saw folds, with what came after it, to the Message."""

    async def one(number: int) -> None:
        writer = await pair.session()
        await writer.start()
        speaker, staying = Speaker(writer, pair.notifier), []
        for step in range(25):
            await speaker.say(PIECES[(step + number) % len(PIECES)])
            fresh = pair.client((step + number) % 2).stream(writer.session, 0)
            await until_shown(fresh, speaker, 30)
            if step % 5 == number:
                staying.append(fresh)
            else:
                await fresh.close()
        await speaker.end()
        await writer.finish()
        (message,) = [one for one in await pair.client().messages(writer.session) if one["role"] == "assistant"]
        assert "".join(part["text"] for part in message["parts"]) == speaker.text
        for stream in staying:
            await stream.event("turn.completed", 30)
            (item,) = view(stream.frames).items.values()
            assert item.text == item.shown == speaker.text

    async with asyncio.TaskGroup() as tasks:
        for number in range(4):
            tasks.create_task(one(number))
