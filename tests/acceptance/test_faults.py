"""Everything fails at once, people chat on: nothing accepted is lost, nothing is doubled, nothing is out of order."""

import asyncio
import random
import time
from pathlib import Path

import pytest

from tests.support.cluster import Clusters
from tests.support.faults import Watch
from tests.support.proxy import listening_proxy
from tests.support.storm import Injector, chat_through

SERVED = ["steps=tests.support.lifecycle_agents:steps"]
SETTINGS = {
    "TURNLOG_WORKER_POLL_SECONDS": "0.2",
    "TURNLOG_GATEWAY_HEADS_SECONDS": "1",
    "TURNLOG_AGENT_UNAVAILABLE_SECONDS": "3",
    "TURNLOG_POSTGRES_CONNECT_SECONDS": "2",
    # A turn dies for good only by what it does itself: here it is its worker that is unlucky, often.
    "TURNLOG_TURN_ATTEMPTS": "50",
}


async def _storm(
    clusters: Clusters, tmp_path: Path, *, sessions: int, turns: int, lease: float, seconds: float, cuts: int
) -> None:
    times = {"TURNLOG_TURN_LEASE_SECONDS": str(lease), "TURNLOG_TURN_HEARTBEAT_SECONDS": str(lease / 4)}
    # Who waits for a slot is not stuck: either worker has one for every session.
    times["TURNLOG_WORKER_SLOTS"] = str(sessions)
    async with (
        listening_proxy() as agents,
        listening_proxy() as workers,
        clusters.start(
            gateways=2,
            agents=2,
            workers=2,
            projectors=1,
            serve=SERVED,
            own_servers=True,
            settings=SETTINGS | times,
            through=lambda role, dsn: {"agent": agents, "worker": workers}[role].instead_of(dsn),
            behind=("agent", "worker"),
        ) as cluster,
    ):
        injector = Injector(cluster, lease, {"agent": agents, "worker": workers})
        await chat_through(
            cluster,
            tmp_path / "runs",
            lambda _, watch: _inject(injector, watch, seconds, cuts),
            injector,
            sessions=sessions,
            turns=turns,
            patience=lease + 5,
        )


async def _inject(injector: Injector, watch: Watch, seconds: float, cuts: int) -> None:
    """Each kind once; then random ones until the time is over and so many commits were cut."""
    end = time.monotonic() + seconds
    injector.cut_commits(max(1, cuts // 2))
    async with asyncio.TaskGroup() as together:
        together.create_task(injector.freeze_worker())
        await asyncio.sleep(random.random() * 0.5)
        for kind in random.sample(
            [lambda: injector.kill("gateway"), lambda: injector.kill("agent"), injector.restart_nats], 3
        ):
            await kind()
    watch.restart()
    for kind in random.sample([lambda: injector.kill("worker"), injector.restart_postgres, injector.outage], 3):
        await asyncio.sleep(random.random() * 0.5)
        await kind()
        watch.restart()
    while time.monotonic() < end or injector.cuts < cuts:
        injector.cut_commits(max(1, cuts // 10))
        await asyncio.sleep(random.random() * (3.0 if time.monotonic() < end else 0.5))
        if time.monotonic() < end:
            await random.choice(
                [
                    lambda: injector.kill("worker"),
                    lambda: injector.kill("gateway"),
                    lambda: injector.kill("agent"),
                    injector.freeze_worker,
                    injector.restart_nats,
                    injector.restart_postgres,
                    injector.outage,
                ]
            )()
            watch.restart()


async def test_faults_of_every_kind_lose_double_and_reorder_nothing(clusters: Clusters, tmp_path: Path) -> None:
    await _storm(clusters, tmp_path, sessions=8, turns=1, lease=1.5, seconds=0, cuts=6)


@pytest.mark.soak
@pytest.mark.timeout(5400)
async def test_faults_of_every_kind_for_long(clusters: Clusters, tmp_path: Path) -> None:
    await _storm(clusters, tmp_path, sessions=100, turns=5, lease=2.0, seconds=240, cuts=200)
