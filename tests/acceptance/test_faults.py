"""Everything fails at once, people chat on: nothing accepted is lost, nothing is doubled, nothing is out of order."""

import asyncio
import random
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.cluster import Cluster, Clusters
from tests.support.faults import ENDED, Crowd, Watch, runs_of
from tests.support.processes import RoleProcess
from tests.support.proxy import CuttingProxy, cutting_proxy

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


@dataclass
class Injector:
    """Does to a cluster what happens to clusters; counts what it did."""

    cluster: Cluster
    proxies: dict[str, CuttingProxy] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)

    async def kill(self, role: str) -> None:
        """kill -9, and what a supervisor does then."""
        victim = random.choice(self.cluster.of(role))
        await victim.kill()
        self.done[f"killed {role}"] += 1
        await asyncio.sleep(random.random() * 0.3)
        await victim.start()

    async def freeze_worker(self) -> None:
        """Longer than its lease, so that another takes over; then it wakes up."""
        victim = random.choice(self.cluster.workers)
        victim.freeze()
        await asyncio.sleep(LEASE * 1.6)
        victim.thaw()
        self.done["froze worker"] += 1

    async def restart_nats(self) -> None:
        await self.cluster.nats.kill()
        await asyncio.sleep(0.3)
        await self.cluster.nats.start()
        self.done["restarted NATS"] += 1

    async def restart_postgres(self) -> None:
        await self.cluster.postgres.restart()
        self.done["restarted PostgreSQL"] += 1

    async def outage(self) -> None:
        """PostgreSQL is away for longer than a lease."""
        await self.cluster.postgres.kill()
        await asyncio.sleep(LEASE * 1.25)
        await self.cluster.postgres.start()
        self.done["PostgreSQL away longer than a lease"] += 1

    def cut_commits(self, number: int) -> None:
        """The next commits of both roles lose their reply, or never reach the server."""
        for proxy in self.proxies.values():
            proxy.arm(random.choice(("before", "after")), number)

    @property
    def cuts(self) -> int:
        return sum(proxy.cut for proxy in self.proxies.values())


async def through_proxies(cluster: Cluster, stack: AsyncExitStack) -> dict[str, CuttingProxy]:
    """Agents and workers reach PostgreSQL over a proxy each; they start again with that address."""
    made: dict[str, CuttingProxy] = {}
    for role in ("agent", "worker"):
        name = f"TURNLOG_POSTGRES_{role.upper()}"
        processes = cluster.of(role)
        proxy, through = await stack.enter_async_context(cutting_proxy(processes[0].env[name]))
        made[role] = proxy
        await asyncio.gather(*(_moved(process, name, through) for process in processes))
    await cluster.ready()
    return made


async def _moved(process: RoleProcess, name: str, dsn: str) -> None:
    assert urlsplit(dsn).port != urlsplit(process.env[name]).port
    await process.restart(**{name: dsn})


async def judged(cluster: Cluster, crowd: Crowd, watch: Watch, injector: Injector) -> None:
    """What must hold afterwards, whatever was done."""
    rows = await cluster.fetch("SELECT session_id::text AS s, turn_id::text AS t, status FROM turns")
    status = {(row["s"], row["t"]): row["status"] for row in rows}
    accepted = [(session, turn) for session, turns in crowd.accepted.items() for turn in turns]
    lost = [place for place in accepted if status.get(place) not in ENDED]
    doubled = len(status) - len(accepted)
    heads = {
        row["s"]: row["n"]
        for row in await cluster.fetch("SELECT session_id::text AS s, last_sequence AS n FROM sessions")
    }
    for viewer in crowd.viewers:
        async with asyncio.timeout(10):
            while not viewer.ids or viewer.ids[-1] < heads[viewer.session]:
                await asyncio.sleep(0.05)
    reordered = [v.session for v in crowd.viewers if v.ids != list(range(1, heads[v.session] + 1))]
    runs = runs_of(crowd.counts)
    twice = {tool: count for tool, count in runs.items() if count > 1}
    findings = await cluster.check()
    reasons = await cluster.fetch(
        "SELECT payload ->> 'reason' AS reason, count(*) AS n FROM events WHERE type = 'turn.started' GROUP BY 1"
    )
    starts = {row["reason"]: row["n"] for row in reasons}
    print(
        f"\ninjected: {dict(injector.done)}, commits cut: {injector.cuts}"
        f"\nturns: {len(accepted)} {dict(Counter(status.values()))}, events: {sum(heads.values())}, starts: {starts},"
        f" answers: {crowd.answers}, resumes: {crowd.resumes}, replies replayed: {crowd.replayed}, connections:"
        f" {sum(v.connections for v in crowd.viewers)}, longest without an owner: {watch.longest:.1f} s"
        f"\nlost={len(lost)} doubled={doubled} reordered={len(reordered)} tools run twice={len(twice)} of {len(runs)}"
        f" stuck={len(set(watch.stuck))} findings={len(findings)}"
    )
    assert (lost, doubled, reordered, twice, findings) == ([], 0, [], {}, [])
    assert watch.stuck == [], watch.evidence


async def _storm(clusters: Clusters, tmp_path: Path, *, sessions: int, turns: int, seconds: float, cuts: int) -> None:
    async with (
        AsyncExitStack() as stack,
        clusters.start(
            gateways=2, agents=2, workers=2, projectors=1, serve=SERVED, own_servers=True, settings=SETTINGS
        ) as cluster,
    ):
        injector = Injector(cluster, await through_proxies(cluster, stack))
        crowd = Crowd(cluster, tmp_path / "runs", sessions=sessions, turns=turns)
        watch = Watch(cluster, LEASE + 5)
        try:
            async with asyncio.TaskGroup() as background:
                watching = background.create_task(watch.run())
                people = asyncio.TaskGroup()
                async with people:
                    chatting = people.create_task(crowd.run(people))
                    await crowd.under_way()
                    await _inject(injector, watch, seconds, cuts)
                    crowd.calm.set()
                    await chatting
                    watching.cancel()
                    await judged(cluster, crowd, watch, injector)
                    for viewer in people._tasks:
                        if viewer is not asyncio.current_task():
                            viewer.cancel()
        finally:
            await crowd.close()


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


@pytest.mark.timeout(120)
async def test_faults_of_every_kind_lose_double_and_reorder_nothing(clusters: Clusters, tmp_path: Path) -> None:
    await _storm(clusters, tmp_path, sessions=8, turns=1, seconds=0, cuts=6)


@pytest.mark.soak
async def test_faults_of_every_kind_for_long(clusters: Clusters, tmp_path: Path) -> None:
    await _storm(clusters, tmp_path, sessions=100, turns=5, seconds=240, cuts=200)
