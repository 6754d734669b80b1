"""Life and death of worker processes: leases, fences, hand-backs, drain; real processes on real PostgreSQL and NATS."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.client import finished, terminal
from tests.support.cluster import MORTAL, Cluster
from tests.support.processes import RoleProcess
from tests.support.standing import StandingClusters
from tests.support.waiting import Stopwatch, eventually

LEASE = 2.0
SERVED = [
    "echo=tests.support.agents:echo",
    "hold=tests.support.agents:hold",
    "slow=tests.support.agents:slow",
    "block=tests.support.execution_agents:block",
    "count=tests.support.execution_agents:count",
    "cling=tests.support.execution_agents:cling",
]


@pytest.fixture(scope="module")
def standing(standing_clusters: StandingClusters) -> Iterator[Cluster]:
    settings = MORTAL | {"TURNLOG_WORKER_DRAIN_SECONDS": "60"}
    with standing_clusters.start(workers=2, serve=SERVED, settings=settings) as running:
        yield running


@pytest.fixture
async def cluster(standing: Cluster) -> AsyncIterator[Cluster]:
    """Two workers that run, mended after each test."""
    await eventually(lambda: workers_run(standing), "the workers run")
    yield standing
    await standing.mend()


async def workers_run(cluster: Cluster) -> bool:
    """Each worker's newest start has a lease."""
    rows = await cluster.fetch("SELECT worker_id::text AS id FROM workers WHERE expires_at > clock_timestamp()")
    starts = [
        [json.loads(line)["worker"] for line in worker.text().splitlines() if '"worker.runs"' in line]
        for worker in cluster.workers
    ]
    return all(started and started[-1] in {row["id"] for row in rows} for started in starts)


async def restarted(cluster: Cluster, drain_seconds: str) -> None:
    """All workers with another limit for drains."""
    await asyncio.gather(*(w.restart(TURNLOG_WORKER_DRAIN_SECONDS=drain_seconds) for w in cluster.workers))
    await eventually(lambda: workers_run(cluster), "the workers run")


async def test_k12_a_blocked_loop_is_not_a_death(cluster: Cluster) -> None:
    """K12: user code blocks the worker's loop for three leases; the heartbeat thread keeps the claim."""
    client = cluster.client()
    session = await client.create("block")
    submitted = (await client.submit(session, str(3 * LEASE)))["turn_id"]
    turn = await finished(client, session, submitted)
    assert turn["status"] == "completed"
    assert turn["attempt"] == 1
    assert turn["output"] == "blocking done"
    assert await cluster.check(all_terminal=False) == []


async def holder_of(cluster: Cluster, session: str) -> RoleProcess:
    """The worker that holds the session's turn."""
    (holder,) = await cluster.fetch("SELECT worker_id::text AS id FROM claims WHERE session_id = $1::uuid", session)
    return next(worker for worker in cluster.workers if holder["id"] in worker.text())


async def test_a_killed_worker_does_not_block_the_session(cluster: Cluster, tmp_path: Path) -> None:
    """K02: within lease + 5 s another worker goes on; the text of the dead attempt is in no message."""
    client = cluster.client()
    go = tmp_path / "go"
    session = await client.create("hold")
    stream = await client.stream(session, 0).opened()
    turn = (await client.submit(session, str(go)))["turn_id"]
    await stream.event("item.delta")
    await (await holder_of(cluster, session)).kill()
    since = Stopwatch()
    go.touch()
    ended = await finished(client, session, turn)
    assert since() < LEASE + 5
    assert ended["status"] == "completed"
    assert ended["attempt"] >= 2
    messages = await client.messages(session)
    assert [part["text"] for part in messages[-1]["parts"]] == ["holding done"]
    assert await cluster.check(all_terminal=False) == []


async def test_a_tool_of_a_killed_worker_never_runs_twice(cluster: Cluster, tmp_path: Path) -> None:
    """Invariant 12: it may have run and is not idempotent, so the turn fails."""
    client = cluster.client()
    session, ran = await client.create("count"), tmp_path / "ran"
    turn = (await client.submit(session, str(ran)))["turn_id"]

    async def started() -> bool:
        return await asyncio.to_thread(ran.exists)

    await eventually(started, "the tool runs")
    await (await holder_of(cluster, session)).kill()
    since = Stopwatch()
    ended = await finished(client, session, turn)
    assert since() < LEASE + 5
    assert ended["error"]["code"] == "outcome_unknown"
    assert ran.read_text() == "ran\n"


async def test_k05_a_frozen_worker_that_thaws_writes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """K05: frozen past its lease, another takes over; thawed, its writes are refused and it stops."""
    client = cluster.client()
    go = tmp_path / "go"
    session = await client.create("hold")
    stream = await client.stream(session, 0).opened()
    turn = (await client.submit(session, str(go)))["turn_id"]
    await stream.event("item.delta")
    frozen = await holder_of(cluster, session)
    frozen.freeze()

    async def taken_over() -> bool:
        return bool((await client.turn(session, turn))["attempt"] >= 2)

    await eventually(taken_over, "another worker has the turn")
    frozen.thaw()

    async def stopped() -> bool:
        return any("turn.claim_lost" in line and turn in line for line in frozen.lately().splitlines())

    await eventually(stopped, "the thawed worker sees that it lost the turn")
    go.touch()
    assert (await finished(client, session, turn))["status"] == "completed"
    assert await cluster.check(all_terminal=False) == []


async def test_a_long_queue_in_one_session_does_not_starve_another(cluster: Cluster) -> None:
    """One slot, and more turns waiting than end while the others are served: they are served all the same."""
    only, other = cluster.workers
    await asyncio.gather(other.kill(), only.restart(TURNLOG_WORKER_SLOTS="1"))
    try:
        client = cluster.client()
        busy, *quiet = [await client.create("slow") for _ in range(3)]
        for _ in range(60):
            await client.submit(busy, "6 0.05")
        turns = [(session, (await client.submit(session, "2 0.05"))["turn_id"]) for session in quiet]
        for session, turn in turns:
            assert (await finished(client, session, turn))["status"] == "completed"
        left = await client.json("GET", f"/v1/sessions/{busy}/status")
        assert left["queued"] > 10, "the long queue has not ended before"
        assert left["queue_state"] == "open"
    finally:
        only.env.pop("TURNLOG_WORKER_SLOTS")
        await client.json("DELETE", f"/v1/sessions/{busy}", status=204)
        await only.kill()


async def test_an_interrupt_makes_way_for_the_next_turn(cluster: Cluster, tmp_path: Path) -> None:
    """`if_busy: interrupt`: the running turn stops at its next await, keeps its text, and the queue goes on."""
    client = cluster.client()
    go = tmp_path / "go"
    session = await client.create("hold")
    stream = await client.stream(session, 0).opened()
    first = (await client.submit(session, str(go)))["turn_id"]
    await stream.event("item.delta")
    since = Stopwatch()
    second = (await client.submit(session, str(tmp_path), if_busy="interrupt"))["turn_id"]
    assert (await finished(client, session, first))["status"] == "interrupted"
    assert since() < 2
    assert (await finished(client, session, second))["status"] == "completed"
    messages = await client.messages(session)
    assert [message["status"] for message in messages] == ["complete", "partial", "complete", "complete"]
    assert messages[1]["parts"][0]["text"] == "holding "


@pytest.mark.parametrize("agent", ["hold", "cling"])
async def test_a_turn_that_outlasts_the_drain_is_handed_back(cluster: Cluster, tmp_path: Path, agent: str) -> None:
    """A hand-back is no death: the other worker goes on with the next attempt at once. Nor does one become a death by
    users' code that does not let go."""
    await restarted(cluster, "0.5")
    client = cluster.client()
    go = tmp_path / "go"
    session = await client.create(agent)
    stream = await client.stream(session, 0).opened()
    turn = (await client.submit(session, str(go)))["turn_id"]
    await stream.event("item.delta")
    ending = asyncio.create_task((await holder_of(cluster, session)).terminate())
    started = await stream.event("turn.released")
    assert started.turn_id == turn
    go.touch()
    ended = await finished(client, session, turn)
    assert (ended["status"], ended["output"]) == ("completed", f"{agent}ing done")
    starts = [event["data"]["reason"] for event in await client.events(session) if event["type"] == "turn.started"]
    assert starts[:2] == ["first", "released"]
    assert await ending == 0
    assert await cluster.check(all_terminal=False) == []


async def test_k07_draining_workers_finish_what_they_have_and_claim_nothing(cluster: Cluster, tmp_path: Path) -> None:
    await restarted(cluster, "60")
    client = cluster.client()
    go = tmp_path / "go"
    session = await client.create("hold")
    stream = await client.stream(session, 0).opened()
    turn = (await client.submit(session, str(go)))["turn_id"]
    await stream.event("item.delta")
    ending = [asyncio.create_task(worker.terminate()) for worker in cluster.workers]

    async def draining() -> bool:
        return all("worker.drains" in worker.lately() for worker in cluster.workers)

    await eventually(draining, "both workers drain")
    other = await client.create("echo")
    waiting = (await client.submit(other, "later"))["turn_id"]
    behind = (await client.submit(session, "next"))["turn_id"]
    go.touch()
    await terminal(stream, turn)
    assert (await client.turn(session, turn))["output"] == "holding done"
    assert await asyncio.gather(*ending) == [0, 0]
    assert (await client.turn(other, waiting))["status"] == "queued"
    assert (await client.turn(session, behind))["status"] == "queued"
