"""Every process is restarted by SIGTERM, one after the other, while people chat: no turn is stranded, none dies."""

import time
from pathlib import Path

import pytest

from tests.support.cluster import Clusters
from tests.support.faults import Crowd, Watch
from tests.support.life import owner_of
from tests.support.storm import Injector, chat_through

SERVED = ["steps=tests.support.lifecycle_agents:steps", "hold=tests.support.agents:hold"]


async def roll(clusters: Clusters, tmp_path: Path, *, sessions: int, seconds: float) -> None:
    """Rounds until the time is over, at least one."""
    settings = {"TURNLOG_WORKER_DRAIN_SECONDS": "0.3"}
    async with clusters.start(
        gateways=2, agents=2, workers=2, projectors=1, serve=SERVED, settings=settings
    ) as cluster:
        injector, go = Injector(cluster, lease=10.0), tmp_path / "go"
        client = cluster.client()
        held = await client.create("hold")
        turn = (await client.submit(held, str(go)))["turn_id"]
        assert (await owner_of(cluster, turn)).role == "worker"

        async def disturb(crowd: Crowd, _: Watch) -> None:
            crowd.accepted[held] = [turn]
            end = time.monotonic() + seconds
            while True:
                before = [viewer.connections for viewer in crowd.viewers]
                await injector.restart_one_by_one("worker", "agent")
                assert [viewer.connections for viewer in crowd.viewers] == before, "the streams just go on"
                await injector.restart_one_by_one("gateway")
                if time.monotonic() >= end:
                    go.touch()
                    return

        await chat_through(cluster, tmp_path / "runs", disturb, injector, sessions=sessions, turns=1, patience=3.0)
        starts = "SELECT turn_id::text AS turn, payload ->> 'reason' AS reason FROM events WHERE type = 'turn.started'"
        reasons = [(row["turn"], row["reason"]) for row in await cluster.fetch(starts)]
        assert (turn, "released") in reasons, "a turn that outlasts its worker is handed back"
        assert "worker_lost" not in {reason for _, reason in reasons}, "nobody died"


async def test_k07_k09_a_rolling_restart_strands_nothing(clusters: Clusters, tmp_path: Path) -> None:
    """K07, K09: hand-backs are no deaths, a running turn always has a live owner or is claimed at once, viewers keep
    their streams while workers and agents change, and go on elsewhere when gateways do."""
    await roll(clusters, tmp_path, sessions=4, seconds=0)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_k07_k09_ten_minutes_of_rolling_restarts(clusters: Clusters, tmp_path: Path) -> None:
    await roll(clusters, tmp_path, sessions=30, seconds=600)
