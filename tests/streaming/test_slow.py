"""Viewers that do not keep up cost bounded memory, lose nothing they cannot get again, and disturb nobody."""

import asyncio
import gc
import os
import re
from collections.abc import Sequence as Many
from contextlib import AsyncExitStack
from typing import Literal

import pytest

from domain.events.envelope import envelope
from domain.ids import Micros
from services.gateway.agent_client import Heads, ReplayPage, SessionHead
from services.gateway.sse import frames
from services.gateway.sse.limits import Limits
from tests.support.peers import frames_of, raw_stream, read_all
from tests.support.sse import assert_gapless
from tests.support.streaming import FakeBroker, Log, stream_gateway, watching
from tests.support.watchers import Watcher, until_all, watching_all

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


class Endless(Log):
    """Makes each event anew when it is asked for, so that a log of any size takes no memory."""

    def __init__(self, pad: int) -> None:
        super().__init__()
        self.pad = b'{"pad":"%b"}' % (b"x" * pad)
        self.count = 1

    def commit(self) -> bytes:
        self.count += 1
        return self.envelope(S, self.count)

    def envelope(self, session: str, sequence: int) -> bytes:
        return envelope(session, sequence, f"event-{sequence}", "runtime.event", 1, None, Micros(0), self.pad)

    def last(self, session: str) -> int:
        return self.count

    async def page(
        self, session_id: str, after: int, form: Literal["sse", "json"] = "sse", limit: int | None = None
    ) -> ReplayPage:
        count = max(1, self.page_bytes // (len(self.pad) + 300))
        last = min(after + count, self.count)
        made = [frames.event(n, "runtime.event", self.envelope(S, n)) for n in range(after + 1, last + 1)]
        return ReplayPage(min(after + 1, last), last, self.count, False, b"".join(made))

    async def heads(self, session_ids: Many[str]) -> Heads:
        return Heads(
            1, {session: SessionHead(self.count, "open", None, None, 0, "human", False) for session in session_ids}
        )


class Counting:
    """A viewer that only looks at the ids."""

    def __init__(self, port: int, after: int, upto: int) -> None:
        self._port, self._after, self._upto = port, after, upto

    async def run(self) -> int:
        """How many events came, each the next one."""
        loop, next_, rest = asyncio.get_running_loop(), self._after + 1, b""
        async with raw_stream(self._port, S, self._after, 2**20) as peer:
            while next_ <= self._upto:
                data = rest + await loop.sock_recv(peer, 2**20)
                assert len(data) > len(rest), "the stream has ended"
                for found in re.finditer(rb"\nid: (\d+)\nevent: runtime", data):
                    assert int(found[1]) == next_
                    next_ += 1
                rest = data[data.rfind(b"\n", 0, -1) :][-64:] if b"\n" in data else data[-64:]
        return next_ - 1 - self._after


async def never_reading(viewers: int, pad: int, total: int, resume_bytes: int, allowed_mib: float) -> None:
    """So many that never read, while so many bytes pass by; then each finds that it was closed as slow, and goes on
    where it was: every tenth up to the end, the others for so many bytes."""
    log, broker = Endless(pad), FakeBroker()
    # What they did not read they read in the end, and that takes its time: nobody gives them up before.
    limits = Limits(linger_seconds=3_600)
    async with stream_gateway(log, broker, limits, user_timeout=3_600) as gateway, AsyncExitStack() as stack:
        reader = Watcher(S, [gateway.port])
        await stack.enter_async_context(watching_all([reader]))
        peers = [await stack.enter_async_context(raw_stream(gateway.port, S)) for _ in range(viewers)]
        async with asyncio.timeout(60):
            while gateway.hub.viewers < viewers + 1 or reader.last < 1:
                await asyncio.sleep(0.01)
        gc.collect()
        before = peak = resident_mib()
        passed = closed_after = 0
        while passed < total:
            for _ in range(max(1, 65_536 // pad)):
                broker.event(S, log.commit())
                passed += pad
            await until_all([reader], lambda one: one.last == log.count, 60, "who reads has it")
            reader.ids.clear()
            peak = max(peak, resident_mib())
            closed_after = closed_after or (passed if gateway.hub.viewers == 1 else 0)
        assert gateway.hub.viewers == 1
        print(
            f"\n{viewers} that never read, {passed / 2**20:.0f} MiB passed: grown by {peak - before:.1f} MiB at most;"
            f" all closed after {closed_after / 2**20:.1f} MiB"
        )
        assert peak - before < allowed_mib
        resumed = 0
        for number, peer in enumerate(peers):
            answer = frames_of(await asyncio.wait_for(read_all(peer), 60))
            assert answer[-1].json == {"reason": "slow_consumer"}
            got = [int(frame.id) for frame in answer if frame.committed and frame.id is not None]
            assert_gapless(got)
            upto = log.count if number % 10 == 0 else min(log.count, got[-1] + resume_bytes // pad)
            resumed += await Counting(gateway.port, got[-1], upto).run() * pad
        print(f"all went on where they were: {resumed / 2**20:.0f} MiB, each event once and in order")


@pytest.mark.alone
async def test_d06_many_that_never_read_share_one_copy_and_resume() -> None:
    """opencode#31923: what passes is twice what is allowed to stay."""
    await never_reading(30, 16_000, 16 * 2**20, 2**20, 8)


@pytest.mark.soak
@pytest.mark.timeout(3_000)
async def test_d06_two_hundred_that_never_read_while_a_gigabyte_passes() -> None:
    await never_reading(200, 64_000, 2**30, 32 * 2**20, 64)


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
