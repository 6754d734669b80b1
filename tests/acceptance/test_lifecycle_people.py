"""What people do to turns: interrupt from anywhere, approve, refuse, ask again; over real processes."""

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import terminal
from tests.support.cluster import Cluster, Clusters
from tests.support.commands import turnlog
from tests.support.life import SERVED, approve, finished, of_type, owner_of, paused
from tests.support.lifecycle_agents import lines
from tests.support.sse import assert_gapless
from tests.support.standing import StandingClusters
from tests.support.waiting import Stopwatch, eventually


@pytest.fixture(scope="module")
def standing(standing_clusters: StandingClusters) -> Iterator[Cluster]:
    """Two gateways, two workers."""
    with standing_clusters.start(gateways=2, workers=2, serve=SERVED) as running:
        yield running


async def begun(directory: Path, name: str = "asked") -> None:
    async def there() -> bool:
        return bool(lines(directory, name))

    await eventually(there, f"something is noted in {name}")


async def test_p03_an_interrupt_keeps_the_partial_text_under_its_id(cluster: Cluster) -> None:
    """P03: stopped in the middle: the message has the text so far, is partial, and keeps its id; the user's stays."""
    a, b = cluster.client(0), cluster.client(1)
    session = await a.create("slow")
    stream = await a.stream(session, 0).opened()
    turn = (await a.submit(session, "1000 0.02"))["turn_id"]
    started = await stream.event("item.started")
    await stream.until(lambda: sum(frame.event == "item.delta" for frame in stream.frames) >= 5, 10, "five deltas")
    await b.json("POST", f"/v1/sessions/{session}/turns/{turn}/interrupt", status=202)
    end = await terminal(stream, turn)
    assert end.event == "turn.interrupted"
    user, partial = await b.messages(session)
    assert (user["role"], user["status"]) == ("user", "complete")
    assert (partial["message_id"], partial["status"]) == (started.json["data"]["message_id"], "partial")
    text = "".join(part["text"] for part in partial["parts"])
    deltas = "".join(frame.json["data"]["text"] for frame in stream.frames if frame.event == "item.delta")
    assert text.startswith(deltas)
    assert "".join(f"{n} " for n in range(1000)).startswith(text)
    assert_gapless(stream.ids)
    again = await a.json("POST", f"/v1/sessions/{session}/turns/{turn}/interrupt", status=409)
    assert (again["code"], again["turn_status"]) == ("turn_not_running", "interrupted")


async def test_a_model_call_that_does_not_stream_is_interrupted_within_a_second(
    cluster: Cluster, tmp_path: Path
) -> None:
    client = cluster.client(1)
    session = await client.create("mute")
    stream = await client.stream(session, 0).opened()
    turn = (await client.submit(session, str(tmp_path)))["turn_id"]
    await begun(tmp_path)
    since = Stopwatch()
    await client.json("POST", f"/v1/sessions/{session}/turns/{turn}/interrupt", status=202)
    await terminal(stream, turn)
    assert since() < 1.0


async def stop_anywhere(cluster: Cluster, rounds: int, within: float) -> None:
    """Interrupts over each gateway in turn; each stops its turn in time."""
    clients = [cluster.client(number) for number in range(len(cluster.gateways))]
    for number in range(rounds):
        client = clients[number % len(clients)]
        session = await client.create("slow")
        turn = (await client.submit(session, "2000 0.05"))["turn_id"]

        async def runs(session: str = session, turn: str = turn) -> bool:
            return bool((await clients[0].turn(session, turn))["status"] == "running")

        await eventually(runs, "it runs")
        since = Stopwatch()
        await client.json("POST", f"/v1/sessions/{session}/turns/{turn}/interrupt", status=202)
        assert (await finished(client, session, turn))["status"] == "interrupted"
        assert since() < within


async def test_x01_an_interrupt_over_any_gateway_finds_the_owner(cluster: Cluster) -> None:
    """X01: a stored intent that the owner sees, whichever of the workers it is."""
    await stop_anywhere(cluster, 8, 2.0)


@pytest.mark.soak
async def test_x01_a_hundred_times_with_four_workers(clusters: Clusters) -> None:
    async with clusters.start(gateways=2, workers=4, serve=SERVED) as cluster:
        await stop_anywhere(cluster, 100, 2.0)


@pytest.mark.soak
async def test_x01_a_hundred_times_without_the_broker(clusters: Clusters) -> None:
    """With the heartbeat of production."""
    settings = {"TURNLOG_TURN_LEASE_SECONDS": "15", "TURNLOG_TURN_HEARTBEAT_SECONDS": "5"}
    async with clusters.start(gateways=2, workers=4, serve=SERVED, own_nats=True, settings=settings) as cluster:
        await cluster.nats.kill()
        await asyncio.gather(*(stop_anywhere(cluster, 10, 6.0) for _ in range(10)))


async def test_x01_an_interrupt_without_the_broker_takes_a_heartbeat(clusters: Clusters) -> None:
    """X01: within 6 s with NATS down; here a heartbeat comes every second."""
    settings = {"TURNLOG_TURN_LEASE_SECONDS": "3", "TURNLOG_TURN_HEARTBEAT_SECONDS": "1"}
    async with clusters.start(workers=2, serve=SERVED, own_nats=True, settings=settings) as cluster:
        await cluster.nats.kill()
        await stop_anywhere(cluster, 2, 6.0)


async def test_x05_only_the_named_turn_is_stopped(cluster: Cluster, tmp_path: Path) -> None:
    """X05: queue three, cancel one: the others complete; interrupt one: they complete after a resume."""
    client = cluster.client()
    session = await client.create("hold")
    one, two, three, four = [(await client.submit(session, str(tmp_path / n)))["turn_id"] for n in "abcd"]
    cancelled = await client.json("POST", f"/v1/sessions/{session}/turns/{two}/cancel")
    assert cancelled["status"] == "cancelled"
    (tmp_path / "a").touch()
    assert (await finished(client, session, one))["status"] == "completed"

    async def runs() -> bool:
        return bool((await client.turn(session, three))["status"] == "running")

    await eventually(runs, "the third runs")
    refused = await client.json("POST", f"/v1/sessions/{session}/turns/{three}/cancel", status=409)
    assert refused["code"] == "turn_not_cancellable"
    await client.json("POST", f"/v1/sessions/{session}/turns/{three}/interrupt", status=202)
    assert (await finished(client, session, three))["status"] == "interrupted"
    (tmp_path / "d").touch()
    status = await client.json("GET", f"/v1/sessions/{session}/status")
    assert (status["queue_state"], status["queued"]) == ("paused", 1)
    reply = await client.submit(session, str(tmp_path / "d"))
    assert reply["queue_state"] == "paused"
    await client.json("POST", f"/v1/sessions/{session}/resume")
    assert (await finished(client, session, four))["status"] == "completed"
    assert (await finished(client, session, reply["turn_id"]))["status"] == "completed"
    assert (await client.turn(session, two))["status"] == "cancelled"
    assert await cluster.check(all_terminal=False) == []


@pytest.mark.parametrize("policy", ["queue", "reject", "interrupt"])
async def test_c05_two_submits_at_once_under_each_policy(cluster: Cluster, policy: str, tmp_path: Path) -> None:
    """C05: serialised, refused with the busy turn's id, or the first one makes way; never two at a time."""
    await collide(cluster, policy, 4, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("policy", ["queue", "reject", "interrupt"])
async def test_c05_two_hundred_times_under_each_policy(cluster: Cluster, policy: str, tmp_path: Path) -> None:
    await collide(cluster, policy, 200, tmp_path)


async def collide(cluster: Cluster, policy: str, rounds: int, directory: Path) -> None:
    """Two submits, up to 50 ms apart; neither turn ends by itself before both have their answer."""
    a, b = cluster.client(0), cluster.client(1)
    for number in range(rounds):
        session, go = await a.create("hold"), directory / str(number)
        body = {"input": str(go), "if_busy": policy}

        async def second(session: str = session, body: dict[str, str] = body) -> Any:
            await asyncio.sleep(random.random() * 0.05)
            return await b.request("POST", f"/v1/sessions/{session}/turns", body)

        first, later = await asyncio.gather(a.request("POST", f"/v1/sessions/{session}/turns", body), second())
        go.touch()
        accepted = [answer.json()["turn_id"] for answer in (first, later) if answer.status_code == 202]
        ended = [(await finished(a, session, turn))["status"] for turn in accepted]
        if policy == "reject":
            (refused,) = [answer.json() for answer in (first, later) if answer.status_code == 409]
            assert (refused["code"], refused["active_turn_id"]) == ("session_busy", accepted[0])
            assert ended == ["completed"]
        elif policy == "queue":
            assert ended == ["completed", "completed"]
        else:
            assert len(accepted) == 2
            assert set(ended) <= {"completed", "interrupted"}
            assert "completed" in ended
            status = await a.json("GET", f"/v1/sessions/{session}/status")
            assert (status["queue_state"], status["queued"]) == ("open", 0), "the queue goes on by itself"
    assert await cluster.check(all_terminal=False) == []


async def ask(cluster: Cluster, directory: Path, calls: int, rounds: int = 1) -> tuple[str, str]:
    """A turn that waits for so many approvals."""
    client = cluster.client()
    session = await client.create("approver")
    work = json.dumps({"directory": str(directory), "calls": calls, "rounds": rounds})
    turn = (await client.submit(session, work))["turn_id"]
    await paused(client, session, turn, calls)
    return session, turn


async def test_h01_five_answers_within_a_moment_run_each_tool_once(cluster: Cluster, tmp_path: Path) -> None:
    """H01: five parallel questions, answered at the same instant over both gateways, twice each."""
    await answer_five(cluster, tmp_path)
    assert await cluster.check(all_terminal=False) == []


async def answer_five(cluster: Cluster, directory: Path) -> None:
    session, turn = await ask(cluster, directory, 5)
    events = await cluster.client().events(session)
    assert of_type(events, "tool.started") == [], "a gated call has no start before its answer"
    calls = [f"call_{n}" for n in range(5)] * 2
    random.shuffle(calls)
    tabs = [cluster.client(0), cluster.client(1)]
    codes = await asyncio.gather(*(approve(tabs[n % 2], session, turn, call) for n, call in enumerate(calls)))
    assert set(codes) == {202}
    ended = await finished(tabs[0], session, turn)
    assert ended["output"] == "Done: " + " ".join(f"did 0.{n}" for n in range(5))
    assert sorted(lines(directory, "ran")) == [f"0.{n}" for n in range(5)]
    assert len(lines(directory, "asked")) == 2, "the model was not asked for the batch again"


@pytest.mark.soak
async def test_h01_two_hundred_times(cluster: Cluster, tmp_path: Path) -> None:
    """H01: eight at a time, so that answers and workers meet in any order."""
    directories = [tmp_path / str(number) for number in range(200)]

    async def some(part: list[Path]) -> None:
        for directory in part:
            directory.mkdir()
            await answer_five(cluster, directory)

    await asyncio.gather(*(some(directories[first::8]) for first in range(8)))
    assert await cluster.check(all_terminal=False) == []


async def test_h03_two_approvals_at_one_instant_run_the_tool_once(cluster: Cluster, tmp_path: Path) -> None:
    """H03: from two tabs and by a retry; a contrary answer is refused, also after the end."""
    session, turn = await ask(cluster, tmp_path, 1)
    a, b = cluster.client(0), cluster.client(1)
    codes = await asyncio.gather(*(approve(tab, session, turn, "call_0") for tab in (a, b, a)))
    assert codes == [202, 202, 202]
    assert (await finished(a, session, turn))["status"] == "completed"
    assert lines(tmp_path, "ran") == ["0.0"]
    assert await approve(b, session, turn, "call_0", approved=False) == 409
    assert await approve(b, session, turn, "call_0") == 202
    assert lines(tmp_path, "ran") == ["0.0"]


async def test_a_refusal_runs_nothing_and_the_turn_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    session, turn = await ask(cluster, tmp_path, 2)
    client = cluster.client()
    assert await approve(client, session, turn, "call_1", approved=False) == 202
    assert await approve(client, session, turn, "call_0") == 202
    assert (await finished(client, session, turn))["status"] == "completed"
    assert lines(tmp_path, "ran") == ["0.0"]


async def test_r19_what_follows_an_approval_reaches_every_tab(cluster: Cluster, tmp_path: Path) -> None:
    """R19: the continued leg is on the same line: the tab that did not answer, and whoever opens later, see all."""
    session, turn = await ask(cluster, tmp_path, 1)
    a, b = cluster.client(0), cluster.client(1)
    other = await b.stream(session, 0).opened()
    assert await approve(a, session, turn, "call_0") == 202
    await terminal(other, turn)
    assert_gapless(other.ids)
    late = a.stream(session, 0)
    await terminal(late, turn)
    assert [frame.data for frame in late.committed] == [frame.data for frame in other.committed]
    kinds = [frame.event for frame in other.committed]
    assert kinds.index("turn.paused") < kinds.index("turn.answered") < kinds.index("turn.continued")
    assert kinds.count("turn.started") == 2
    status = await a.json("GET", f"/v1/sessions/{session}/status")
    assert status["chat_status"] == "human"


async def test_many_pauses_survive_the_restart_of_everything(cluster: Cluster, tmp_path: Path) -> None:
    """Three rounds whose call ids repeat; between them every process is killed. Each act runs once, with its own
    answer."""
    session, turn = await ask(cluster, tmp_path, 2, rounds=3)
    for round_ in range(3):
        if round_ == 1:
            # Killed before it asked again, a worker would have died in the turn, which does count.
            await paused(cluster.client(), session, turn, 2)
            await asyncio.gather(*(process.kill() for process in cluster.processes))
            await cluster.mend()
        client = cluster.client(round_ % 2)
        await paused(client, session, turn, 2)
        assert await approve(client, session, turn, "call_1") == 202
        await paused(client, session, turn, 1)
        assert await approve(client, session, turn, "call_0", approved=round_ != 2) == 202
    ended = await finished(cluster.client(), session, turn)
    assert (ended["status"], ended["attempt"]) == ("completed", 1), "pauses are no deaths"
    assert sorted(lines(tmp_path, "ran")) == ["0.0", "0.1", "1.0", "1.1", "2.1"]
    events = await cluster.client().events(session)
    assert [s["reason"] for s in of_type(events, "turn.started")] == ["first", *["continued"] * 3]
    assert await cluster.check(all_terminal=False) == []


async def test_an_approval_after_a_cancel_runs_nothing(cluster: Cluster, tmp_path: Path) -> None:
    session, turn = await ask(cluster, tmp_path, 1)
    client = cluster.client()
    behind = (await client.submit(session, json.dumps({"directory": str(tmp_path), "calls": 1, "rounds": 0})))[
        "turn_id"
    ]
    await client.json("POST", f"/v1/sessions/{session}/turns/{turn}/cancel")
    assert await approve(client, session, turn, "call_0") == 409
    assert (await finished(client, session, behind))["status"] == "completed", "after the cancel the next one starts"
    assert lines(tmp_path, "ran") == []


async def test_h04_a_question_nobody_answers_expires(cluster: Cluster, tmp_path: Path) -> None:
    """H04: the turn fails with requirement_expired; a late answer is refused; nothing runs."""
    await expiring(cluster, "1")
    session, turn = await ask(cluster, tmp_path, 2)
    client = cluster.client()
    # On a busy machine even this one may come too late.
    assert await approve(client, session, turn, "call_0") in (202, 409)
    ended = await finished(client, session, turn)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "requirement_expired")
    assert await approve(client, session, turn, "call_1") == 409
    assert lines(tmp_path, "ran") == []
    await expiring(cluster, "0")


async def expiring(cluster: Cluster, seconds: str) -> None:
    """Its workers anew, with that setting."""
    await asyncio.gather(*(w.restart(TURNLOG_TURN_REQUIREMENT_SECONDS=seconds) for w in cluster.workers))


async def test_the_owner_is_one_of_the_workers(cluster: Cluster) -> None:
    """The harness itself: who holds a turn is known."""
    client = cluster.client()
    session = await client.create("slow")
    turn = (await client.submit(session, "30 0.05"))["turn_id"]
    assert (await owner_of(cluster, turn)).role == "worker"
    await finished(client, session, turn)


async def test_a_chat_shows_questions_and_answers_them(cluster: Cluster, tmp_path: Path) -> None:
    """`turnlog chat`: two rounds of two questions; one is refused with a reason; a line that decides nothing is asked
    again."""
    work = json.dumps({"directory": str(tmp_path), "calls": 2, "rounds": 2})
    typed = "\n".join([work, "perhaps", "y", "n too dear", "y", "y"]) + "\n"
    url = cluster.gateways[0].url
    code, out, err = await turnlog("chat", "--agent", "approver", "--url", url, stdin=typed)
    assert code == 0, err
    assert sorted(lines(tmp_path, "ran")) == ["0.0", "1.0", "1.1"]
    assert "? approval needed: act" in out
    assert "please answer with" in err
    assert "Done: did 0.0" in out
    answered = await cluster.fetch(
        "SELECT payload -> 'answer' ->> 'note' AS note FROM events WHERE type = 'turn.answered'"
    )
    assert "too dear" in {row["note"] for row in answered}
