"""Sizes, slow readers, aborted connections and what proxies need, on real processes."""

import asyncio
import itertools
import os
import random
import socket
import struct
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import psutil
import pytest

from tests.support.client import Client, terminal
from tests.support.cluster import Cluster
from tests.support.peers import frames_of, raw_stream
from tests.support.processes import RoleProcess
from tests.support.sse import assert_gapless
from tests.support.waiting import PATIENCE, Stopwatch, eventually

KIB, MIB = 1024, 1024 * 1024
_RESET = struct.pack("ii", 1, 0)


async def test_d04_no_proxy_may_hold_anything_back(cluster: Cluster) -> None:
    """xagent#1358, atc#139: headers against buffering and compression on every stream, whatever the client accepts; an
    event is at the viewer within 200 ms of its commit."""
    a, b = cluster.client(0), cluster.client(1)
    session = await a.create("echo", external_id="d04")
    for name in (session, "d04"):
        stream = await a.stream(name, 0, **{"Accept-Encoding": "gzip, br, zstd"}).opened()
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["cache-control"] == "no-cache, no-transform"
        assert stream.headers["x-accel-buffering"] == "no"
        assert "content-encoding" not in stream.headers
        assert "content-length" not in stream.headers
        assert stream.parser.retries, "a time to wait before one comes back"
    watching = await b.stream(session, 0).opened()
    delays = []
    for number in range(10):
        sequence = (await a.submit(session, f"turn {number}"))["sequence"]
        since_commit = Stopwatch()
        await watching.sequence(sequence)
        delays.append(since_commit())
    assert sorted(delays)[len(delays) // 2] < 0.2


@pytest.mark.parametrize("size", [1, 64 * KIB, 255 * KIB, 256 * KIB + 1, MIB - 1, MIB + 1, 20 * MIB])
async def test_d12_inputs_of_any_size(cluster: Cluster, size: int) -> None:
    """omni#1166: what is above the limit is refused at once with 413 and leaves no trace; the next one is taken."""
    a, b = cluster.client(0), cluster.client(1)
    session = await a.create("silent")
    stream = await b.stream(session, 0).opened()
    answer = await a.request("POST", f"/v1/sessions/{session}/turns", {"input": "x" * size})
    if size <= 256 * KIB:
        assert answer.status_code == 202, answer.text
        await terminal(stream, answer.json()["turn_id"])
    else:
        assert answer.status_code == 413
        assert answer.headers["content-type"].startswith("application/problem+json")
        assert (await a.json("GET", f"/v1/sessions/{session}/status"))["last_sequence"] == 1
    after = await a.submit(session, "next")
    await terminal(stream, after["turn_id"])
    assert_gapless(stream.ids)


@pytest.mark.parametrize("agent", ["bulk", "bulky_tool"])
async def test_d12_the_cursor_passes_large_events_one_by_one(cluster: Cluster, agent: str) -> None:
    """Code#138: a page never fails for ever at a large event: from each cursor the next event comes, at either
    gateway, as a stream and as JSON."""
    a = cluster.client(0)
    session = await a.create(agent)
    await a.run(session, str(MIB + 1))
    head = (await a.json("GET", f"/v1/sessions/{session}/status"))["last_sequence"]
    for after in range(head):
        client = cluster.client(after % 2)
        stream = client.stream(session, after)
        await stream.sequence(after + 1)
        assert stream.ids[0] == after + 1
        path = f"/v1/sessions/{session}/events?after_sequence={after}&limit=1"
        page = await client.json("GET", path, Accept="application/json")
        assert [item["sequence"] for item in page["items"]] == [after + 1]
        assert page["next_sequence"] == after + 1
        await stream.close()


async def slow_reader(cluster: Cluster, turns: int, size: int, bytes_a_second: int) -> None:
    """Reads so many bytes a second, and comes back at the other gateway whenever it was closed; nobody else waits."""
    a = cluster.client(0)
    session = await a.create("bulk")
    other = await cluster.client(1).stream(session, 0).opened()
    got: list[int] = []
    reading = asyncio.create_task(_slowly(cluster, session, got, bytes_a_second))
    for _ in range(turns):
        turn = (await a.submit(session, str(size)))["turn_id"]
        await terminal(other, turn)
    assert_gapless(other.ids)
    # Deltas, items and outputs: several times the text.
    async with asyncio.timeout(turns * size / bytes_a_second * 10 + PATIENCE):
        while not got or got[-1] < other.last_id:
            assert not reading.done()
            await asyncio.sleep(0.05)
    reading.cancel()
    assert_gapless(got)


async def _slowly(cluster: Cluster, session: str, got: list[int], bytes_a_second: int) -> None:
    loop = asyncio.get_running_loop()
    pieces_a_second = 20
    for attempt in itertools.count():
        port = cluster.gateways[attempt % 2].port or 0
        async with raw_stream(port, session, got[-1] if got else 0, receive_buffer=16 * KIB) as peer:
            before, answer = len(got), bytearray()
            # A reset is a close, too: the kernel gives up a peer whose window stays too small for half a minute.
            while data := await _piece(loop.sock_recv(peer, bytes_a_second // pieces_a_second)):
                answer += data
                ids = [int(frame.id) for frame in frames_of(bytes(answer)) if frame.committed and frame.id is not None]
                got[before:] = ids
                await asyncio.sleep(1 / pieces_a_second)


async def _piece(receiving: Coroutine[Any, Any, bytes]) -> bytes:
    with suppress(ConnectionResetError):
        return await receiving
    return b""


async def test_d07_a_slow_reader_gets_everything_over_its_reconnects(cluster: Cluster) -> None:
    """platform#1220, opencode#31094: never a hole in the middle: closed or complete, and the rest after the reconnect.
    (That it is closed when it falls too far behind: tests/streaming/test_slow.py.)"""
    await slow_reader(cluster, turns=8, size=20 * KIB, bytes_a_second=100_000)


@pytest.mark.soak
async def test_d07_a_reader_of_ten_kilobytes_a_second(cluster: Cluster) -> None:
    await slow_reader(cluster, turns=25, size=10 * KIB, bytes_a_second=10_000)


async def streams_of(client: Client) -> dict[str, float]:
    """What the gateway counts: open streams and subscriptions."""
    lines = [line.rsplit(" ", 1) for line in (await client.http.get("/metrics")).text.splitlines()]
    names = ("turnlog_viewers", "turnlog_subscriptions")
    return {name: float(value) for name, value in (line for line in lines if len(line) == 2) if name in names}


def descriptors(gateway: RoleProcess, cluster: Cluster) -> int:
    """Open ones but those to agent processes: connections that bursts open are kept alive for half a minute."""
    ports = {agent.port for agent in cluster.agents}
    connections = psutil.Process(gateway.pid).net_connections("tcp")
    to_agents = sum(1 for one in connections if one.raddr and one.raddr.port in ports)
    return len(os.listdir(f"/proc/{gateway.pid}/fd")) - to_agents


async def abort_again_and_again(cluster: Cluster, cycles: int) -> None:
    gateway = cluster.gateways[0]
    client = cluster.client(0)
    sessions = [await client.create("echo") for _ in range(10)]
    for session in sessions:
        await client.run(session, "one two three")
    dice = random.Random(7)

    async def cycle() -> None:
        session = dice.choice(sessions)
        async with raw_stream(gateway.port or 0, session) as peer:
            if dice.random() < 0.3:
                head = await asyncio.get_running_loop().sock_recv(peer, 4096)
                assert head.startswith(b"HTTP/1.1 200 "), head
            elif dice.random() < 0.7:
                await asyncio.sleep(dice.random() * 0.02)
            if dice.random() < 0.5:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    async def burst(count: int) -> None:
        talking = asyncio.create_task(client.run(dice.choice(sessions), "meanwhile"))
        for _ in range(0, count, 50):
            await asyncio.gather(*(cycle() for _ in range(50)))
        await talking

    await burst(100)

    async def held() -> tuple[int, dict[str, float], int]:
        rows = await cluster.fetch("SELECT count(*) AS n FROM pg_stat_activity WHERE usename LIKE '%gateway%'")
        return descriptors(gateway, cluster), await streams_of(client), rows[0]["n"]

    async def at_rest() -> tuple[int, dict[str, float], int] | None:
        before = await held()
        await asyncio.sleep(0.3)
        return before if before == await held() else None

    base = await eventually(at_rest, "the gateway is at rest")
    assert base is not None
    assert base[1] == {"turnlog_viewers": 0.0, "turnlog_subscriptions": 0.0}
    await burst(cycles)

    async def back() -> bool:
        now = await held()
        return now[0] <= base[0] + 2 and now[1] == base[1] and now[2] <= base[2] + 4

    await eventually(back, f"everything is back to {base}, it is {await held()}")
    stream = client.stream(sessions[0], 0)
    await terminal(stream, (await client.submit(sessions[0], "still there"))["turn_id"])
    assert_gapless(stream.ids)


@pytest.mark.alone
async def test_d08_aborted_connections_leave_nothing(cluster: Cluster) -> None:
    """litestar#3772: connections, subscriptions and descriptors are back to what they were. (Tasks and objects:
    tests/streaming/test_leaks.py.)"""
    await abort_again_and_again(cluster, 500)


@pytest.mark.soak
async def test_d08_ten_thousand_aborted_connections(cluster: Cluster) -> None:
    await abort_again_and_again(cluster, 10_000)
