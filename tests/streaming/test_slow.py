"""Viewers that do not keep up cost bounded memory, lose nothing they cannot get again, and disturb nobody."""

import asyncio
import os
from contextlib import AsyncExitStack

from services.gateway.sse.limits import Limits
from tests.support.peers import frames_of, raw_stream, read_all
from tests.support.sse import assert_gapless
from tests.support.streaming import FakeBroker, Log, stream_gateway, watching

S = "session"


def resident_mib() -> float:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def test_a_viewer_that_never_reads_is_closed_as_slow_and_resumes_complete() -> None:
    log, broker = Log(), FakeBroker()
    log.append(S)
    limits = Limits(viewer_buffer_bytes=256 * 1024)
    async with stream_gateway(log, broker, limits) as gateway, watching(gateway.url) as (client,):
        other = await client.stream(S, 0).opened()
        async with raw_stream(gateway.port, S) as peer:
            async with asyncio.timeout(20):
                while gateway.hub.viewers < 2:
                    await asyncio.sleep(0.01)
                # Loopback buffers of the kernel take some MiB before anybody notices.
                while gateway.hub.viewers == 2:
                    for _ in range(10):
                        broker.event(S, log.append(S, pad=4000))
                    await other.sequence(log.last(S))
            answer = frames_of(await read_all(peer))
        assert answer[-1].event == "stream.closing"
        assert answer[-1].json == {"reason": "slow_consumer"}
        got = [int(frame.id) for frame in answer if frame.committed and frame.id is not None]
        assert_gapless(got)
        assert got[-1] < log.last(S)
        rest = await client.stream(S, got[-1]).opened()
        await rest.sequence(log.last(S))
        assert_gapless(rest.ids, first=got[-1] + 1)
        assert_gapless(other.ids)


async def test_many_that_never_read_share_one_copy_of_what_they_do_not_take() -> None:
    """60 peers × (1 MiB + what a transport holds) would be far more than is allowed here."""
    log, broker = Log(), FakeBroker()
    log.append(S)
    async with stream_gateway(log, broker) as gateway, watching(gateway.url) as (client,), AsyncExitStack() as stack:
        other = await client.stream(S, 0).opened()
        for _ in range(60):
            await stack.enter_async_context(raw_stream(gateway.port, S))
        async with asyncio.timeout(30):
            while gateway.hub.viewers < 61:
                await asyncio.sleep(0.01)
            before = resident_mib()
            peak = before
            committed = 0
            while gateway.hub.viewers > 1:
                for _ in range(16):
                    committed += 4000
                    broker.event(S, log.append(S, pad=4000))
                await other.sequence(log.last(S))
                other.frames.clear()
                peak = max(peak, resident_mib())
        assert peak - before - committed / 2**20 < 24


async def test_d07_a_slow_reader_gets_everything_over_its_reconnects() -> None:
    """8 MB/s of reading at most, against a faster publisher."""
    log, broker = Log(page_bytes=32 * 1024), FakeBroker()
    log.append(S)
    got: list[int] = []
    ends = []
    async with (
        stream_gateway(log, broker, Limits(viewer_buffer_bytes=64 * 1024)) as gateway,
        watching(gateway.url) as (client,),
        asyncio.TaskGroup() as tasks,
    ):
        other = await client.stream(S, 0).opened()

        async def publish() -> None:
            while log.last(S) < 2501:
                broker.event(S, log.append(S, pad=4000))
                if log.last(S) % 20 == 0:
                    await other.sequence(log.last(S))

        publishing = tasks.create_task(publish())
        while not publishing.done() or got[-1] < 2501:
            async with raw_stream(gateway.port, S, got[-1] if got else 0, 128 * 1024) as peer:
                frames = frames_of(await read_all(peer, b'"event_id":"event-2501"', 16 * 1024, 0.002))
                got += [int(frame.id) for frame in frames if frame.committed and frame.id is not None]
                ends.append(frames[-1].json.get("reason"))
    assert_gapless(got)
    assert "slow_consumer" in ends


async def test_replay_to_a_slow_reader_holds_back_and_starves_nobody() -> None:
    log, broker = Log(page_bytes=64 * 1024), FakeBroker()
    for _ in range(3000):
        log.append(S, pad=4000)
    async with stream_gateway(log, broker) as gateway, watching(gateway.url) as (client,):
        async with raw_stream(gateway.port, S) as peer:
            async with asyncio.timeout(10):
                while not log.pages or len(log.pages) != await settled(log):
                    await asyncio.sleep(0.01)
            # 12 MB lie in the log; a peer that reads nothing has drawn what the kernel takes and a few pages.
            assert len(log.pages) * log.page_bytes < 9 * 2**20
            other = await client.stream(S, 2999).opened(timeout=1)
            await other.sequence(3000, timeout=1)
            reading = asyncio.create_task(read_all(peer))
            async with asyncio.timeout(10):
                while log.pages[-1][1] < 2980:
                    await asyncio.sleep(0.01)
            await gateway.hub.drain(0)
            frames = frames_of(await reading)
        assert_gapless([int(frame.id) for frame in frames if frame.committed and frame.id is not None])


async def settled(log: Log) -> int:
    """Number of pages asked for once no more are."""
    before = -1
    while before != len(log.pages):
        before = len(log.pages)
        await asyncio.sleep(0.2)
    return before


async def test_an_event_larger_than_the_buffer_passes() -> None:
    log, broker = Log(), FakeBroker()
    log.append(S)
    limits = Limits(viewer_buffer_bytes=64 * 1024)
    async with stream_gateway(log, broker, limits) as gateway, watching(gateway.url) as (client,):
        stream = await client.stream(S, 0).opened()
        await stream.sequence(1)
        for pad in (1, 64 * 1024, 2**20 - 1, 2**20 + 1):
            broker.event(S, log.append(S, pad=pad))
            await stream.sequence(log.last(S))
        late = await client.stream(S, 0).opened()
        await late.sequence(log.last(S))
        assert_gapless(stream.ids)
        assert_gapless(late.ids)
