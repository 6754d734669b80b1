"""The broker is away, empty, or loses a member: turns go on and every event reaches the viewers in time."""

import asyncio
import time
from datetime import datetime
from pathlib import Path

import pytest

from tests.support.client import Client, terminal
from tests.support.cluster import MORTAL, Cluster, Clusters
from tests.support.sse import Stream, assert_gapless
from tests.support.waiting import Stopwatch

SLOW = "slow=tests.support.agents:slow"
HOLD = "hold=tests.support.agents:hold"
TOOLS = "tools=tests.support.agents:tools"
IN_TIME = 6.0
"""Seconds from an event's commit to its viewers."""


class Arrivals:
    """When each event of the log came, by sequence."""

    def __init__(self, stream: Stream) -> None:
        self.at: dict[int, float] = {}
        self._stream = stream
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            await self._stream.until(lambda: len(self._stream.ids) > len(self.at), 3600)
            for sequence in self._stream.ids[len(self.at) :]:
                self.at[sequence] = time.time()

    async def latest(self) -> float:
        """The longest time from a commit to an arrival."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        frames = self._stream.committed
        committed = {int(f.id or 0): datetime.fromisoformat(f.json["created_at"]).timestamp() for f in frames}
        return max(self.at[sequence] - committed[sequence] for sequence in self.at)


async def outage(clusters: Clusters, go: Path, seconds: float, heads: float, *, wiped: bool) -> None:
    """Mid-turn the broker goes, for so long; meanwhile that turn and others end."""
    settings = {"TURNLOG_GATEWAY_HEADS_SECONDS": str(heads)}
    async with clusters.start(
        gateways=2, workers=2, serve=[SLOW, HOLD, TOOLS], own_nats=1, projectors=1, settings=settings
    ) as cluster:
        a, b = cluster.client(0), cluster.client(1)
        session = await a.create("hold")
        streams = [await client.stream(session, 0).opened() for client in (a, b)]
        first = (await a.submit(session, str(go)))["turn_id"]
        await streams[1].event("item.delta")
        watch = Stopwatch()
        arrivals = [Arrivals(stream) for stream in streams]
        await (cluster.wipe_nats() if wiped else cluster.nats.kill())
        down_since = time.monotonic()
        second = (await b.submit(session, str(go)))["turn_id"]
        late = await b.stream(session, 0).opened()
        others = [await new_conversation(a, f"meanwhile {number}") for number in range(3)]
        go.touch()
        for stream in (*streams, late):
            await terminal(stream, first)
            await terminal(stream, second)
        await asyncio.sleep(max(0.0, seconds - (time.monotonic() - down_since)))
        await cluster.nats.start()
        third = (await a.submit(session, str(go)))["turn_id"]
        for stream in (*streams, late):
            await terminal(stream, third)
            assert_gapless(stream.ids)
        for other, stream in others:
            await stream.event("turn.completed")
            assert_gapless(stream.ids)
            assert [frame.json for frame in stream.committed] == await a.events(other)
        assert [await seen.latest() * watch.share() < IN_TIME for seen in arrivals] == [True, True]
        assert await cluster.check() == []


async def new_conversation(client: Client, text: str) -> tuple[str, Stream]:
    session = await client.create("tools")
    stream = await client.stream(session, 0).opened()
    await client.submit(session, text)
    return session, stream


async def test_r04_the_broker_is_stopped_in_mid_turn(clusters: Clusters, tmp_path: Path) -> None:
    """Design §10: submits get 202, turns end, viewers get every event within 6 s of its commit."""
    await outage(clusters, tmp_path / "go", 2.0, 1.0, wiped=False)


@pytest.mark.soak
@pytest.mark.parametrize("wiped", [False, True])
async def test_r04_the_broker_is_away_for_ten_seconds(clusters: Clusters, wiped: bool, tmp_path: Path) -> None:
    """With the settings of production: heads every 5 s."""
    await outage(clusters, tmp_path / "go", 10.0, 5.0, wiped=wiped)


async def test_the_topology_of_compose_as_processes(clusters: Clusters) -> None:
    """Three brokers, two of each role, three replicas of each stream; one broker, one gateway, one agent and one worker
    are killed in mid-turn, and the viewer at the other gateway sees it all."""
    settings = MORTAL | {"TURNLOG_NATS_REPLICAS": "3", "TURNLOG_GATEWAY_HEADS_SECONDS": "1"}
    async with clusters.start(
        gateways=2, agents=2, workers=2, projectors=2, serve=[SLOW], own_nats=3, settings=settings
    ) as cluster:
        a, b = cluster.client(0), cluster.client(1)
        session = await a.create("slow")
        stream = await b.stream(session, 0).opened()
        await terminal(stream, (await a.submit(session, "3 0.05"))["turn_id"])
        turn = (await a.submit(session, "10 0.1"))["turn_id"]
        await stream.until(lambda: any(f.event == "item.delta" and f.turn_id == turn for f in stream.frames))
        await kill_one_of_each(cluster)
        await terminal(stream, turn)
        later = (await b.submit(session, "3 0.05"))["turn_id"]
        await terminal(stream, later)
        assert_gapless(stream.ids)
        assert await cluster.check() == []


async def kill_one_of_each(cluster: Cluster) -> None:
    victims = (cluster.gateways[0], cluster.agents[0], cluster.workers[0], cluster.projectors[0])
    await asyncio.gather(cluster.brokers[0].kill(), *(victim.kill() for victim in victims))
