"""What is published: in order, once in the stream, bounded, and only where it belongs."""

import asyncio
from pathlib import Path

from domain.ids import Sequence, SessionId, TurnId
from domain.ports import Notifier, Publication
from infra.embedded import EmbeddedNats
from infra.nats.connection import BrokerConnection, open_broker
from infra.nats.notifier import NatsNotifier, open_notifier
from infra.nats.options import BrokerOptions
from infra.nats.streams import open_streams
from infra.nats.subscriber import NatsSubscriber
from tests.support.broker import ITEM, OTHER_SESSION, SESSION, TURN, Heard, broker_options, until


def published(sequence: int, envelope: bytes, session_id: SessionId = SESSION) -> Publication:
    return Publication(session_id, Sequence(sequence), envelope)


async def test_events_and_frames_of_one_publisher_keep_their_order(nats: EmbeddedNats) -> None:
    heard = Heard()
    expected = []
    async with (
        open_broker(broker_options(nats, "gateway")) as gateway,
        open_broker(broker_options(nats, "worker")) as worker,
        open_notifier(worker) as notifier,
    ):
        await gateway.connected()
        await NatsSubscriber(gateway).subscribe(SESSION, heard)
        for number in range(2_000):
            data = b"%d" % number
            match number % 3:
                case 0:
                    notifier.publish_events([published(number, data)])
                    expected.append(("event", data))
                case 1:
                    notifier.publish_live(SESSION, ITEM, data)
                    expected.append(("live", data))
                case _:
                    notifier.publish_snapshot(SESSION, ITEM, data)
                    expected.append(("live", data))
        notifier.clear_live(SESSION, ITEM)
        notifier.publish_events([published(1, b"of another", OTHER_SESSION), published(2_000, b"last")])
        expected.append(("event", b"last"))
        await until(lambda: len(heard.all) == len(expected))
    assert heard.all == expected


async def test_a_repeated_event_is_heard_twice_and_kept_once(nats: EmbeddedNats) -> None:
    heard = Heard()
    async with (
        open_broker(broker_options(nats, "gateway")) as gateway,
        open_broker(broker_options(nats, "projector")) as projector,
        open_streams(projector) as streams,
        open_notifier(projector) as notifier,
    ):
        await gateway.connected()
        await streams.ready()
        await NatsSubscriber(gateway).subscribe(SESSION, heard)
        batch = [published(number, b"e%d" % number) for number in (1, 2, 3)]
        notifier.publish_events(batch)
        notifier.publish_events(batch)
        notifier.publish_events([published(1, b"o1", OTHER_SESSION)])
        await until(lambda: len(heard.all) == 6)
        kept = await projector.client.jetstream().get_msg("TURNLOG_EVENTS", seq=3)
        assert (kept.data, kept.headers) == (b"e3", {"Nats-Msg-Id": f"{SESSION}:3"})
        other = await projector.client.jetstream().get_msg("TURNLOG_EVENTS", seq=4)
        assert other.subject == f"turnlog.session.{OTHER_SESSION}.event"


async def test_an_event_too_large_for_the_broker_is_told_as_a_gap(nats: EmbeddedNats) -> None:
    heard = Heard()
    async with (
        open_broker(broker_options(nats, "gateway")) as gateway,
        open_broker(broker_options(nats, "worker")) as worker,
        open_streams(worker) as streams,
        open_notifier(worker) as notifier,
    ):
        await gateway.connected()
        await streams.ready()
        await NatsSubscriber(gateway).subscribe(SESSION, heard)
        largest = b"x" * ((2 << 20) - 1024)
        notifier.publish_live(SESSION, ITEM, b"y" + largest)
        notifier.publish_events([published(1, largest), published(2, b"y" + largest), published(3, b"next")])
        await until(lambda: len(heard.all) == 3)
        assert [(kind, len(data)) for kind, data in heard.all] == [("event", len(largest)), ("gap", 0), ("event", 4)]
        assert notifier.outbox.lost == 0


async def test_hints_reach_workers(nats: EmbeddedNats) -> None:
    woken, signals = list[str](), list[bytes]()
    async with (
        open_broker(broker_options(nats, "worker")) as worker,
        open_broker(broker_options(nats, "agent")) as agent,
        open_notifier(agent) as notifier,
    ):
        await worker.connected()
        subscriber = NatsSubscriber(worker)
        await subscriber.subscribe_wake("default", lambda: woken.append("default"))
        await subscriber.subscribe_wake("other", lambda: woken.append("other"))
        subscription = await subscriber.subscribe_signals(TURN, signals.append, lambda: signals.append(b"gap"))
        notifier.wake("default")
        notifier.signal(TurnId("0192f3c1-0000-7000-8000-0000000000ab"), b"of another turn")
        notifier.signal(TURN, b"interrupt")
        await until(lambda: (woken, signals) == (["default"], [b"interrupt"]))
        await nats.restart()
        await until(lambda: (sorted(woken), signals) == (["default", "default", "other"], [b"interrupt", b"gap"]))
        subscription.close()


async def test_installations_on_one_server_do_not_hear_each_other(place: Path) -> None:
    shared = EmbeddedNats(place / "shared", namespaces=("turnlog", "other"))
    await shared.start()
    ours, theirs = Heard(), Heard()
    try:
        async with (
            open_broker(broker_options(shared, "gateway")) as gateway,
            open_broker(broker_options(shared, "gateway", namespace="other")) as other_gateway,
            open_broker(broker_options(shared, "worker")) as worker,
            open_broker(broker_options(shared, "worker", namespace="other")) as other_worker,
            open_streams(worker) as streams,
            open_streams(other_worker) as other_streams,
            open_notifier(worker) as notifier,
            open_notifier(other_worker) as other_notifier,
        ):
            await asyncio.gather(gateway.connected(), other_gateway.connected())
            await asyncio.gather(streams.ready(), other_streams.ready())
            await NatsSubscriber(gateway).subscribe(SESSION, ours)
            await NatsSubscriber(other_gateway).subscribe(SESSION, theirs)
            notifier.publish_events([published(1, b"ours")])
            other_notifier.publish_events([published(1, b"theirs")])
            await until(lambda: bool(ours.all) and bool(theirs.all))
            assert (ours.all, theirs.all) == ([("event", b"ours")], [("event", b"theirs")])
    finally:
        await shared.kill()


async def test_without_a_broker_the_oldest_goes_and_callers_never_hear_of_it() -> None:
    options = BrokerOptions(
        namespace="turnlog", role="agent", servers=("nats://127.0.0.1:1",), outbox_messages=10, outbox_bytes=1_000
    )
    notifier: Notifier = NatsNotifier(BrokerConnection(options))
    assert isinstance(notifier, NatsNotifier)
    for _ in range(25):
        notifier.wake("default")
    assert (len(notifier.outbox), notifier.outbox.lost) == (10, 15)
    notifier.signal(TURN, b"x" * 600)
    notifier.signal(TURN, b"x" * 600)
    assert len(notifier.outbox) == 1  # bytes: what is older than the last one does not fit beside it
    notifier.signal(TURN, b"x" * 2_000)
    assert len(notifier.outbox) == 1  # a single larger one is taken
    lost = notifier.outbox.lost
    for session_id in ("*", ">", "a.b", "a b", "", "a\r\nPUB x 0"):
        notifier.publish_events([published(1, b"", SessionId(session_id))])
        notifier.publish_live(SESSION, session_id, b"")
        notifier.wake(session_id)
    assert (len(notifier.outbox), notifier.outbox.lost) == (1, lost + 18)
