"""The connection to a broker that is away, comes, goes, freezes and refuses."""

import asyncio
import os
import signal
import time

import psutil
import pytest
from structlog.testing import capture_logs

from domain.ids import SessionId
from infra.embedded import EmbeddedNats
from infra.nats.connection import ConnectionState, NotConnected, open_broker
from infra.nats.notifier import open_notifier
from infra.nats.subscriber import NatsSubscriber
from tests.support.broker import SESSION, Heard, broker_options, until


async def freeze(server: EmbeddedNats) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    process = psutil.Process(server.pid)
    await until(lambda: process.status() == psutil.STATUS_STOPPED)


def thaw(server: EmbeddedNats) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGCONT)


async def test_all_works_when_the_broker_comes_later(nats: EmbeddedNats) -> None:
    await nats.stop()
    heard, states = Heard(), list[ConnectionState]()
    async with (
        open_broker(broker_options(nats, "gateway")) as gateway,
        open_broker(broker_options(nats, "agent")) as agent,
        open_notifier(agent) as notifier,
    ):
        gateway.listen(states.append)
        with pytest.raises(NotConnected):
            _ = gateway.client
        started = time.monotonic()
        await NatsSubscriber(gateway).subscribe(SESSION, heard)
        for number in range(100):
            notifier.control(SESSION, b"%d" % number)
        assert time.monotonic() - started < 0.5
        assert (heard.all, states) == ([], [])
        await nats.start()
        await until(lambda: bool(heard.of("gap")))
        await notifier.outbox.emptied()
        notifier.control(SESSION, b"last")
        await until(lambda: b"last" in heard.of("control"))
        assert states == [ConnectionState.CONNECTED]
        assert heard.of("gap") == [b""]


async def test_after_a_restart_every_subscription_is_live_again_and_told_a_gap(nats: EmbeddedNats) -> None:
    heard, states = [Heard() for _ in range(50)], list[ConnectionState]()
    sessions = [SessionId(f"{SESSION[:-3]}{number:03}") for number in range(50)]
    async with (
        open_broker(broker_options(nats, "gateway")) as gateway,
        open_broker(broker_options(nats, "agent")) as agent,
        open_notifier(agent) as notifier,
    ):
        await gateway.connected()
        gateway.listen(states.append)
        subscriber = NatsSubscriber(gateway)
        for session_id, listener in zip(sessions, heard, strict=True):
            await subscriber.subscribe(session_id, listener)
        await nats.kill()
        await until(lambda: states == [ConnectionState.DISCONNECTED])
        assert not gateway.is_connected
        assert all(listener.all == [] for listener in heard)
        await nats.start()
        await until(lambda: states == [ConnectionState.DISCONNECTED, ConnectionState.RECONNECTED])
        assert all(listener.all == [("gap", b"")] for listener in heard)
        for session_id in sessions:
            notifier.control(session_id, session_id.encode())
        await until(lambda: all(len(listener.all) == 2 for listener in heard))
        assert [listener.of("control") for listener in heard] == [[name.encode()] for name in sessions]


async def test_an_error_that_the_server_names_ends_the_client_and_not_the_connection(nats: EmbeddedNats) -> None:
    heard = Heard()
    async with open_broker(broker_options(nats, "gateway")) as gateway:
        client = await gateway.connected()
        await NatsSubscriber(gateway).subscribe(SESSION, heard)
        await client._send_command(b"NONSENSE\r\n")
        await client._flush_pending()
        await until(lambda: client.is_closed)
        await until(lambda: bool(heard.of("gap")))
        assert (await gateway.connected()) is not client


async def test_a_wrong_password_is_one_log_line_without_it_and_heals(nats: EmbeddedNats) -> None:
    options = broker_options(nats, "gateway", password="not-the-password")
    with capture_logs() as logs:
        async with open_broker(options) as gateway:
            await until(lambda: bool(logs))
            await NatsSubscriber(gateway).subscribe(SESSION, Heard())
            await asyncio.sleep(0)
            assert not gateway.is_connected
    assert [(line["event"], line["log_level"]) for line in logs] == [("broker away", "warning")]
    assert "Authorization" in logs[0]["reason"]
    assert "not-the-password" not in repr(logs) + repr(options)


async def test_a_frozen_broker_blocks_nobody(nats: EmbeddedNats) -> None:
    heard = Heard()
    options = broker_options(nats, "agent", outbox_messages=5_000, outbox_bytes=20 << 20)
    async with (
        open_broker(broker_options(nats, "gateway")) as gateway,
        open_broker(options) as agent,
        open_notifier(agent) as notifier,
    ):
        await gateway.connected()
        await agent.connected()
        await NatsSubscriber(gateway).subscribe(SESSION, heard)
        await freeze(nats)
        try:
            slowest = 0.0
            for _ in range(40):
                started = time.monotonic()
                for _ in range(500):
                    notifier.control(SESSION, b"x" * 2_000)
                slowest = max(slowest, time.monotonic() - started)
                await asyncio.sleep(0)
            assert slowest < 0.5
            assert len(notifier.outbox) == 5_000
            assert notifier.outbox.lost > 0
        finally:
            thaw(nats)
        await until(lambda: len(notifier.outbox) == 0)
        notifier.control(SESSION, b"last")
        await until(lambda: heard.of("control")[-1:] == [b"last"])


async def test_closing_is_quick_while_the_broker_is_frozen(nats: EmbeddedNats) -> None:
    try:
        async with open_broker(broker_options(nats, "agent")) as agent, open_notifier(agent) as notifier:
            await agent.connected()
            await freeze(nats)
            for _ in range(5_000):
                notifier.control(SESSION, b"x" * 2_000)
            await until(lambda: 0 < len(notifier.outbox) < 5_000)
            ending = time.monotonic()
        assert time.monotonic() - ending < 4
    finally:
        thaw(nats)


async def test_nothing_is_left_of_a_closed_connection(nats: EmbeddedNats) -> None:
    before = asyncio.all_tasks()
    async with open_broker(broker_options(nats, "gateway")) as gateway:
        client = await gateway.connected()
        for _ in range(3):
            await NatsSubscriber(gateway).subscribe(SESSION, Heard())
    assert client.is_closed
    await until(lambda: asyncio.all_tasks() == before)


async def test_a_subscription_that_was_not_confirmed_in_time_is_told_a_gap_once_it_is(nats: EmbeddedNats) -> None:
    heard = Heard()
    async with open_broker(broker_options(nats, "gateway")) as gateway:
        client = await gateway.connected()
        await freeze(nats)
        try:
            await NatsSubscriber(gateway).subscribe(SESSION, heard)
            assert heard.all == []
        finally:
            thaw(nats)
        await until(lambda: heard.all == [("gap", b"")])
        assert gateway.client is client


async def test_giving_up_a_subscription_does_not_harm_the_connection(nats: EmbeddedNats) -> None:
    """nats-py's own flush ends the read loop then."""
    async with open_broker(broker_options(nats, "gateway")) as gateway:
        client = await gateway.connected()
        for _ in range(20):
            opening = asyncio.create_task(NatsSubscriber(gateway).subscribe(SESSION, Heard()))
            await asyncio.sleep(0)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
        await gateway.flush()
        assert gateway.client is client
        await until(lambda: client.heard == 0)


async def test_lost_connections_leave_no_tasks(nats: EmbeddedNats) -> None:
    async with (
        open_broker(broker_options(nats, "gateway")) as gateway,
        open_broker(broker_options(nats, "agent")) as agent,
        open_notifier(agent) as notifier,
    ):
        await gateway.connected()
        await agent.connected()
        heard = [Heard() for _ in range(30)]
        for listener in heard:
            await NatsSubscriber(gateway).subscribe(SESSION, listener)
        before = len(asyncio.all_tasks())
        for time_ in range(1, 4):
            for _ in range(2_000):
                notifier.control(SESSION, b"x" * 1_000)
            await until(lambda: len(notifier.outbox) < 2_000)
            await nats.kill()
            await nats.start()
            await until(lambda count=time_: all(len(one.of("gap")) == count for one in heard))  # type: ignore[misc]
        await notifier.outbox.emptied()
        await until(lambda: len(asyncio.all_tasks()) == before)
