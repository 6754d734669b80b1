"""D08: whatever a connection does, nothing of it is left behind."""

import asyncio
import gc
import os
import random
import socket
import struct

import pytest

from services.gateway.sse.limits import Limits
from tests.support.peers import raw_stream
from tests.support.streaming import FakeBroker, Log, StreamGateway, stream_gateway, watching

S = "session"
_RESET = struct.pack("ii", 1, 0)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def abort_soon(gateway: StreamGateway, session: str, dice: random.Random) -> None:
    """Connect, ask, and reset the connection after a moment."""
    async with raw_stream(gateway.port, session) as peer:
        if dice.random() < 0.7:
            await asyncio.sleep(dice.random() * 0.02)
        if dice.random() < 0.5:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


async def cycles(count: int) -> None:
    log, broker = Log(page_bytes=16 * 1024), FakeBroker()
    sessions = [f"session-{n}" for n in range(20)]
    for session in sessions:
        for _ in range(100):
            log.append(session, pad=1000)
    dice = random.Random(1)

    async def moment() -> None:
        await asyncio.sleep(dice.random() * 0.01)

    broker.before_subscribe = log.before_heads = log.before_page = moment
    loop = asyncio.get_running_loop()
    async with stream_gateway(log, broker, Limits(recheck_seconds=0.05, comment_seconds=0.1)) as gateway:
        async with watching(gateway.url) as (client,):
            await (await client.stream(S + "-0", 0).opened()).close()

        async def rest() -> tuple[int, int, int, int]:
            """Tasks, descriptors, subscriptions and sessions once they no longer change."""
            before = None
            # The listening socket's queue may be full of connections that are gone.
            async with asyncio.timeout(120):
                while True:
                    await asyncio.sleep(0.2)
                    now = (len(asyncio.all_tasks(loop)), descriptors(), broker.subscriptions, gateway.hub.sessions)
                    if now == before:
                        return now
                    before = now

        base = await rest()
        assert base[2:] == (0, 0)
        for _ in range(0, count, 50):
            for session in sessions:
                broker.event(session, log.append(session, pad=1000))
            async with asyncio.TaskGroup() as tasks:
                for _ in range(50):
                    tasks.create_task(abort_soon(gateway, dice.choice(sessions), dice))
        assert await rest() == base
        assert gateway.hub.viewers == 0
        gc.collect()
        assert not [found for found in gc.get_objects() if type(found).__name__ in ("Viewer", "SessionFeed")]


async def test_d08_connections_aborted_at_any_moment_leave_nothing() -> None:
    await cycles(500)


@pytest.mark.soak
async def test_d08_ten_thousand_aborted_connections() -> None:
    await cycles(10_000)


async def test_d18_a_stream_has_no_hop_headers_and_its_task_ends_within_two_seconds_of_its_client() -> None:
    """soliplex#680. What is about one connection only stands in no answer (the chunk coding is the server's own, and a
    proxy that speaks HTTP/2 takes it off); behind such a proxy: tests/system/test_nginx.py. That the turn goes on:
    X03 in tests/acceptance/test_viewers.py."""
    log, broker = Log(page_bytes=16 * 1024), FakeBroker()
    for _ in range(2_000):
        log.append(S, pad=1_000)

    def serving() -> int:
        return sum(1 for task in asyncio.all_tasks() if "run_asgi" in repr(task.get_coro()))

    hops = {"connection", "keep-alive", "proxy-connection", "upgrade", "te", "trailer"}
    async with stream_gateway(log, broker) as gateway, watching(gateway.url) as (client,):
        for after in (2_000, 0):
            stream = await client.stream(S, after).opened()
            assert not hops & set(stream.headers)
            assert broker.subscriptions == serving() == 1
            await stream.close()
            async with asyncio.timeout(2):
                while gateway.hub.viewers or broker.subscriptions or serving():
                    await asyncio.sleep(0.01)


async def test_one_subscription_for_all_viewers_of_a_session() -> None:
    log, broker = Log(), FakeBroker()
    log.append(S)
    async with stream_gateway(log, broker) as gateway, watching(gateway.url) as (client,):
        streams = [await client.stream(S, 0).opened() for _ in range(5)]
        assert broker.subscriptions == 1
        for stream in streams[:-1]:
            await stream.close()
        broker.event(S, log.append(S))
        await streams[-1].sequence(2)
        assert broker.subscriptions == 1
