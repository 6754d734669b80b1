"""Workers die, freeze and leave; turns go on from what is in the log, and nothing that may run once runs twice."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from domain import commands
from domain.ids import CommandKey, SessionId, TurnId, WorkerId
from domain.parts import TextPart
from infra.pipeline.group import lock_key
from infra.system import SystemIds
from tests.support.client import terminal
from tests.support.cluster import MORTAL, Cluster
from tests.support.life import LEASE, SERVED, finished, of_type, owner_of
from tests.support.lifecycle_agents import fate_file, lines
from tests.support.sse import assert_gapless
from tests.support.stand import open_pipeline
from tests.support.standing import StandingClusters
from tests.support.waiting import Stopwatch, eventually


@pytest.fixture(scope="module")
def standing(standing_clusters: StandingClusters) -> Iterator[Cluster]:
    """Two gateways, two workers."""
    settings = MORTAL | {"TURNLOG_WORKER_DRAIN_SECONDS": "0.5"}
    with standing_clusters.start(gateways=2, workers=2, serve=SERVED, settings=settings) as running:
        yield running


async def noted(directory: Path, name: str, count: int) -> list[str]:
    """Wait until an agent has noted so many lines."""

    async def enough() -> bool:
        return len(lines(directory, name)) >= count

    await eventually(enough, f"{count} lines in {name}")
    return lines(directory, name)


async def test_k02_the_next_worker_continues_the_batch(cluster: Cluster, tmp_path: Path) -> None:
    """K02: killed inside a batch whose first tool has its result: the model is not asked again, the first tool does not
    run again, results of repeated call ids never mix; the five behind it go on, and a viewer sees 1..n."""
    client = cluster.client()
    session = await client.create("batches")
    stream = await cluster.client(1).stream(session, 0).opened()
    turn = (await client.submit(session, str(tmp_path)))["turn_id"]
    behind = [(await client.submit(session, str(tmp_path)))["turn_id"] for _ in range(5)]
    await noted(tmp_path, "slow", 1)
    await stream.event("tool_result.snapshot", turn_id=turn)
    await (await owner_of(cluster, turn)).kill()
    since = Stopwatch()
    await noted(tmp_path, "slow", 2)
    assert since() < LEASE + 5
    (tmp_path / "go").touch()
    ended = await finished(client, session, turn)
    assert ended["status"] == "completed"
    assert ended["attempt"] >= 2
    assert ended["output"] == "quick0 slow0 quick1 slow1"
    for other in behind:
        assert (await finished(client, session, other))["output"] == "quick0 slow0 quick1 slow1"
    assert len(lines(tmp_path, "asked")) == 3 * 6, "three requests a turn: none was repeated"
    assert lines(tmp_path, "quick") == ["0", "1"] * 6
    assert lines(tmp_path, "slow")[:2] == ["0", "0"]
    await terminal(stream, behind[-1])
    assert_gapless(stream.ids)
    events = await client.events(session)
    results = of_type(events, "tool_result.snapshot", turn)
    assert sorted((r["output"], r["tool_call_id"], r["revision"]) for r in results) == [
        ("quick0", "call_0", 1), ("quick1", "call_0", 1), ("slow0", "call_1", 1), ("slow1", "call_1", 1)
    ]  # fmt: skip
    assert len({r["item_id"] for r in results}) == 4
    assert await cluster.check(all_terminal=False) == []


async def test_what_a_dead_attempt_said_after_its_checkpoint_is_in_no_message(cluster: Cluster, tmp_path: Path) -> None:
    client = cluster.client()
    session = await client.create("remote")
    turn = (await client.submit(session, str(tmp_path)))["turn_id"]
    await noted(tmp_path, "attempts", 1)
    await (await owner_of(cluster, turn)).terminate()
    await noted(tmp_path, "attempts", 2)
    (tmp_path / "go").touch()
    ended = await finished(client, session, turn)
    last = f"attempt {ended['attempt']} here"
    assert (ended["status"], ended["output"]) == ("completed", last)
    events = await client.events(session)
    assert [s["reason"] for s in of_type(events, "turn.started")][:2] == ["first", "released"]
    said = [i["text"] for i in of_type(events, "item.completed")]
    assert (said[0], said[-1]) == ("attempt 1 ", last), "the log keeps both"
    assert of_type(events, "item.superseded")[0]["attempt"] == 1
    shown = [(m["role"], m["status"], "".join(p["text"] for p in m["parts"])) for m in await client.messages(session)]
    assert [m for m in shown if m[1] != "superseded"][1:] == [("assistant", "complete", last)]
    assert await cluster.check(all_terminal=False) == []


async def test_a_tool_that_may_have_run_fails_the_turn(cluster: Cluster, tmp_path: Path) -> None:
    client = cluster.client()
    session = await client.create("staller")
    turn = (await client.submit(session, str(tmp_path)))["turn_id"]
    behind = (await client.submit(session, str(tmp_path)))["turn_id"]
    await noted(tmp_path, "ran", 1)
    await (await owner_of(cluster, turn)).kill()
    since = Stopwatch()
    ended = await finished(client, session, turn)
    assert since() < LEASE + 5
    assert (ended["status"], ended["error"]["code"]) == ("failed", "outcome_unknown")
    assert lines(tmp_path, "ran") == ["x"]
    status = await client.json("GET", f"/v1/sessions/{session}/status")
    assert (status["queue_state"], status["chat_status"]) == ("paused", "human")
    (tmp_path / "go").touch()
    await client.json("POST", f"/v1/sessions/{session}/resume")
    assert (await finished(client, session, behind))["output"] == "Text after."


async def test_k14_a_turn_that_kills_its_worker_is_sealed_after_three(cluster: Cluster, tmp_path: Path) -> None:
    """K14: no fourth attempt; the next turn runs after a resume."""
    client = cluster.client()
    session = await client.create("deadly")
    turn = (await client.submit(session, str(tmp_path)))["turn_id"]
    behind = (await client.submit(session, str(tmp_path)))["turn_id"]

    async def supervise() -> None:
        while True:
            for worker in cluster.workers:
                if not worker.alive:
                    await worker.start()
            await asyncio.sleep(0.1)

    supervisor = asyncio.create_task(supervise())
    try:
        ended = await finished(client, session, turn)
        assert (ended["status"], ended["error"]["code"], ended["attempt"]) == ("failed", "poison", 3)
        assert lines(tmp_path, "attempts") == ["1", "2", "3"]
        (tmp_path / "safe").touch()
        await client.json("POST", f"/v1/sessions/{session}/resume")
        assert (await finished(client, session, behind))["output"] == "alive"
    finally:
        supervisor.cancel()


async def test_a_silent_turn_times_out_and_one_in_a_tool_does_not(cluster: Cluster, tmp_path: Path) -> None:
    await restarted(cluster, silence="1.5")
    client = cluster.client()
    silent, busy = await client.create("quiet"), await client.create("staller")
    turn = (await client.submit(silent, "x"))["turn_id"]
    tool = (await client.submit(busy, str(tmp_path)))["turn_id"]
    ended = await finished(client, silent, turn)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "timeout")
    assert (await client.turn(busy, tool))["status"] == "running"
    (tmp_path / "go").touch()
    assert (await finished(client, busy, tool))["status"] == "completed"
    await eventually(lambda: lost(cluster, turn), "its owner has let go of it")
    await restarted(cluster, silence="600")


async def lost(cluster: Cluster, turn: str) -> bool:
    """A worker says that the turn is not its own any more."""
    said = (line for worker in cluster.workers for line in worker.lately().splitlines())
    return any("turn.claim_lost" in line and turn in line for line in said)


async def restarted(cluster: Cluster, *, silence: str) -> None:
    """The workers, with another time after which a turn that says nothing is given up."""
    await asyncio.gather(*(w.restart(TURNLOG_TURN_SILENCE_SECONDS=silence) for w in cluster.workers))


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("completed:elsewhere", "killed"),
        ("running", "killed"),
        ("unknown", "killed"),
        ("broken", "killed"),
        ("completed:elsewhere", "drained"),
    ],
)
async def test_a_runtime_that_knows_is_asked_first(cluster: Cluster, tmp_path: Path, said: str, left: str) -> None:
    client = cluster.client()
    session = await client.create("remote")
    turn = (await client.submit(session, str(tmp_path)))["turn_id"]
    await noted(tmp_path, "attempts", 1)
    fate_file(turn).write_text(said)
    try:
        owner = await owner_of(cluster, turn)
        await (owner.kill() if left == "killed" else owner.terminate())
        since = Stopwatch()
        if said == "running":
            await noted(fate_file(turn).parent, fate_file(turn).with_suffix(".asked").name, 3)
            assert (await client.turn(session, turn))["status"] == "running"
            assert lines(tmp_path, "attempts") == ["1"], "it was left alone"
            fate_file(turn).write_text("completed:in the end")
        elif not said.startswith("completed"):
            await noted(tmp_path, "attempts", 2)
            (tmp_path / "go").touch()
        ended = await finished(client, session, turn)
        assert ended["status"] == "completed"
        assert said == "running" or since() < LEASE + 5
        asked = lines(fate_file(turn).parent, fate_file(turn).with_suffix(".asked").name)
        assert asked, "before anything else"
        expected = {"completed:elsewhere": "elsewhere", "running": "in the end"}
        assert ended["output"] == expected.get(said, f"attempt {ended['attempt']} here")
        assert await cluster.check(all_terminal=False) == []
    finally:
        fate_file(turn).unlink(missing_ok=True)
        fate_file(turn).with_suffix(".asked").unlink(missing_ok=True)


async def test_a_running_turn_without_any_claim_is_found(cluster: Cluster, tmp_path: Path) -> None:
    client = cluster.client()
    session = await client.create("remote")
    turn = (await client.submit(session, str(tmp_path)))["turn_id"]
    await noted(tmp_path, "attempts", 1)
    async with cluster.connection() as connection:
        await connection.execute("DELETE FROM claims WHERE turn_id = $1::uuid", turn)
    await noted(tmp_path, "attempts", 2)
    await eventually(lambda: lost(cluster, turn), "its first owner learns of it by the heartbeat")
    (tmp_path / "go").touch()
    ended = await finished(client, session, turn)
    assert ended["output"] == f"attempt {ended['attempt']} here"
    assert ended["attempt"] >= 2


async def test_k05_what_thaws_after_its_lease_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    """K05: frozen past its lease and taken over: it appends nothing, its heartbeat is refused, it stops."""
    client = cluster.client()
    session = await client.create("remote")
    turn = (await client.submit(session, str(tmp_path)))["turn_id"]
    await noted(tmp_path, "attempts", 1)
    owner = await owner_of(cluster, turn)
    owner.freeze()
    since = Stopwatch()
    await noted(tmp_path, "attempts", 2)
    assert since() < LEASE + 5
    (tmp_path / "go").touch()
    owner.thaw()
    await eventually(lambda: lost(cluster, turn), "the thawed worker stops")
    ended = await finished(client, session, turn)
    assert ended["output"] == f"attempt {ended['attempt']} here"
    events = await client.events(session)
    taken = next(e["sequence"] for e in events if e["type"] == "turn.started" and e["data"]["attempt"] == 2)
    assert all(
        e["data"].get("attempt") != 1 for e in events if e["sequence"] > taken and e["type"] != "item.superseded"
    )
    assert await cluster.check(all_terminal=False) == []


async def test_x07_the_interrupt_of_a_turn_without_an_owner_is_settled(cluster: Cluster, tmp_path: Path) -> None:
    """X07: the worker is killed and the turn interrupted at once: terminal within a lease, the queue goes on."""
    client = cluster.client()
    session = await client.create("hold")
    stream = await client.stream(session, 0).opened()
    turn = (await client.submit(session, str(tmp_path / "go")))["turn_id"]
    (tmp_path / "go2").touch()
    behind = (await client.submit(session, str(tmp_path / "go2")))["turn_id"]
    await stream.event("item.delta")
    await (await owner_of(cluster, turn)).kill()
    reply = await client.json("POST", f"/v1/sessions/{session}/turns/{turn}/interrupt", status=202)
    assert reply["interrupt_requested"]
    since = Stopwatch()
    assert (await finished(client, session, turn))["status"] == "interrupted"
    assert since() < LEASE + 5
    await client.json("POST", f"/v1/sessions/{session}/resume")
    assert (await finished(client, session, behind))["status"] == "completed"


async def test_k01_everything_is_killed_and_a_restart_heals(cluster: Cluster, tmp_path: Path) -> None:
    """K01: kill -9 to all of it under load; all sessions progress within two leases, without a manual step."""
    client = cluster.client()
    holding = [await client.create("hold") for _ in range(6)]
    turns = {s: [(await client.submit(s, str(tmp_path / "go")))["turn_id"] for _ in range(2)] for s in holding}
    for session in holding:
        await client.stream(session, 0).event("turn.started")
    await asyncio.gather(*(process.kill() for process in cluster.processes))
    (tmp_path / "go").touch()
    await cluster.mend()
    fresh = cluster.client()

    async def progress() -> bool:
        seen = [await fresh.turn(session, turns[session][0]) for session in holding]
        return all(turn["status"] == "completed" for turn in seen)

    since = Stopwatch()
    await eventually(progress, "all sessions go on")
    assert since() < 2 * LEASE + 5
    for session in holding:
        assert (await finished(fresh, session, turns[session][1]))["status"] == "completed"
    assert await cluster.check(all_terminal=False) == []


async def orphans(cluster: Cluster, count: int) -> list[str]:
    """So many sessions with a turn that was running when its worker died, as a dead worker leaves them."""
    dsn, ids = cluster.workers[0].env["TURNLOG_POSTGRES_WORKER"], SystemIds()
    async with open_pipeline(dsn) as pipeline:
        # As many clients as a busy installation has, not as many as there are sessions: commands wait for seconds only.
        clients = asyncio.Semaphore(100)

        async def one(worker: WorkerId) -> str:
            async with clients:
                return await leave_one(worker)

        async def leave_one(worker: WorkerId) -> str:
            session, turn = SessionId(ids.uuid7()), TurnId(ids.uuid7())
            shared: Any = {"session_id": session}
            await pipeline.execute(commands.CreateSession(**shared, key=CommandKey("create"), agent_id="echo"))
            await pipeline.execute(
                commands.SubmitTurn(**shared, key=CommandKey("one"), turn_id=turn, input=[TextPart("back again")])
            )
            await pipeline.execute(commands.ClaimTurn(**shared, key=CommandKey(f"c:{turn}"), worker_id=worker))
            return session

        # Never registered: its claims are dead from the start. Nobody else may be faster than it.
        for worker in cluster.workers:
            worker.freeze()
        try:
            dead = WorkerId(ids.uuid7())
            return list(await asyncio.gather(*(one(dead) for _ in range(count))))
        finally:
            for worker in cluster.workers:
                worker.thaw()


async def recovered(cluster: Cluster, sessions: list[str], some: int | None = None) -> bool:
    """All (so many) are completed by a later attempt than that of the dead worker."""
    (row,) = await cluster.fetch(
        "SELECT count(*) AS n FROM turns WHERE session_id = ANY($1::uuid[]) AND status = 'completed' AND attempt >= 2",
        sessions,
    )
    return bool(row["n"] >= (len(sessions) if some is None else some))


async def test_k04_many_orphans_and_one_of_their_rescuers_stalls(cluster: Cluster) -> None:
    """K04: recovery is not one worker's job: whichever of them freezes in the middle of it, the other takes over all
    that is left, and what the frozen one had just claimed."""
    for stalls in cluster.workers:
        sessions = await orphans(cluster, 100)
        await eventually(partial(recovered, cluster, sessions, 10), "recovery goes on")
        stalls.freeze()
        await eventually(partial(recovered, cluster, sessions), "all are recovered")
        stalls.thaw()
    assert await cluster.check(all_terminal=False) == []


async def test_k10_locked_sessions_do_not_hold_up_the_others(cluster: Cluster) -> None:
    """K10: every third session cannot be claimed for a while; the others are, and those are later."""
    sessions = await orphans(cluster, 60)
    locked, others = sessions[::3], [one for number, one in enumerate(sessions) if number % 3]
    async with cluster.connection() as connection, connection.transaction():
        for session in locked:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", lock_key(SessionId(session)))
        await eventually(lambda: recovered(cluster, others), "the others are recovered")
        assert not await recovered(cluster, locked)
    await eventually(lambda: recovered(cluster, sessions), "all are recovered")


@pytest.mark.soak
async def test_k04_thousands_of_orphans(cluster: Cluster) -> None:
    """K04, counted; what each recovered turn cost is printed."""
    sessions = await orphans(cluster, 5000)
    since = Stopwatch()
    await eventually(lambda: recovered(cluster, sessions), "all are recovered", timeout=1200, pause=1.0)
    findings = await cluster.check(all_terminal=False)
    print(
        f"\n{len(sessions)} orphans recovered {since():.0f} s after their workers came back; findings={len(findings)}"
    )
    assert findings == []
