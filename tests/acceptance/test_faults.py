"""Everything fails at once, people chat on: nothing accepted is lost, nothing is doubled, nothing is out of order."""

import asyncio
import random
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.cluster import Clusters
from tests.support.faults import Watch
from tests.support.storm import Injector, chat_through, through_proxies

LEASE = 2.0
SERVED = ["steps=tests.support.lifecycle_agents:steps"]
SETTINGS = {
    "TURNLOG_TURN_LEASE_SECONDS": str(LEASE),
    "TURNLOG_TURN_HEARTBEAT_SECONDS": "0.5",
    "TURNLOG_WORKER_POLL_SECONDS": "0.2",
    "TURNLOG_GATEWAY_HEADS_SECONDS": "1",
    "TURNLOG_AGENT_UNAVAILABLE_SECONDS": "3",
    "TURNLOG_POSTGRES_CONNECT_SECONDS": "2",
    # A turn dies for good only by what it does itself: here it is its worker that is unlucky, often.
    "TURNLOG_TURN_ATTEMPTS": "50",
}


async def _storm(clusters: Clusters, tmp_path: Path, *, sessions: int, turns: int, seconds: float, cuts: int) -> None:
    async with (
        AsyncExitStack() as stack,
        clusters.start(
            gateways=2, agents=2, workers=2, projectors=1, serve=SERVED, own_servers=True, settings=SETTINGS
        ) as cluster,
    ):
        injector = Injector(cluster, LEASE, await through_proxies(cluster, stack))
        await chat_through(
            cluster,
            tmp_path / "runs",
            lambda _, watch: _inject(injector, watch, seconds, cuts),
            injector,
            sessions=sessions,
            turns=turns,
            patience=LEASE + 5,
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
        await asyncio.sleep(random.random() * 3.0)
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
    await _storm(clusters, tmp_path, sessions=8, turns=1, seconds=0, cuts=6)


@pytest.mark.soak
async def test_faults_of_every_kind_for_long(clusters: Clusters, tmp_path: Path) -> None:
    await _storm(clusters, tmp_path, sessions=100, turns=5, seconds=240, cuts=200)
