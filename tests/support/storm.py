"""What is done to clusters while people chat, and what must hold afterwards, whatever it was."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.faults import ENDED, Crowd, Watch, runs_of
from tests.support.processes import RoleProcess
from tests.support.proxy import CuttingProxy
from tests.support.waiting import PATIENCE


@dataclass
class Injector:
    """Does to a cluster what happens to clusters; counts what it did."""

    cluster: Cluster
    lease: float
    """Seconds."""
    proxies: dict[str, CuttingProxy] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)

    async def kill(self, role: str) -> None:
        """kill -9, and what a supervisor does then."""
        victim = random.choice(self.cluster.of(role))
        await victim.kill()
        self.done[f"killed {role}"] += 1
        await asyncio.sleep(random.random() * 0.3)
        await victim.start()

    async def restart_one_by_one(self, *roles: str) -> None:
        """SIGTERM, an orderly end, a start, until it serves: one process of each role, then the next ones."""
        for processes in zip(*(self.cluster.of(role) for role in roles), strict=True):
            await asyncio.gather(*(self._restart(process) for process in processes))

    async def _restart(self, process: RoleProcess) -> None:
        assert await process.terminate() == 0, process.lately()[-3000:]
        await process.start()
        await self.cluster.ready([process])
        self.done[f"restarted {process.role}"] += 1

    async def freeze_worker(self) -> None:
        """Longer than its lease, so that another takes over; then it wakes up."""
        victim = random.choice(self.cluster.workers)
        victim.freeze()
        await asyncio.sleep(self.lease * 1.6)
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
        await asyncio.sleep(self.lease * 1.25)
        await self.cluster.postgres.start()
        self.done["PostgreSQL away longer than a lease"] += 1

    def cut_commits(self, number: int) -> None:
        """The next commits of both roles lose their reply, or never reach the server."""
        for proxy in self.proxies.values():
            proxy.arm(random.choice(("before", "after")), number)

    @property
    def cuts(self) -> int:
        return sum(proxy.cut for proxy in self.proxies.values())


async def chat_through(
    cluster: Cluster,
    counts: Path,
    disturb: Callable[[Crowd, Watch], Awaitable[None]],
    injector: Injector,
    *,
    sessions: int,
    turns: int,
    patience: float,
) -> None:
    """So many sessions chat, each at least so many turns and on until `disturb` is over; then everything is judged."""
    crowd = Crowd(cluster, counts, sessions=sessions, turns=turns)
    watch = Watch(cluster, patience)
    try:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch.run())
            chatting = tasks.create_task(crowd.run(tasks))
            await crowd.under_way()
            await disturb(crowd, watch)
            crowd.calm.set()
            await chatting
            watching.cancel()
            await judged(cluster, crowd, watch, injector)
            crowd.leave()
    finally:
        await crowd.close()


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
        async with asyncio.timeout(PATIENCE):
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
