"""Agno agents, teams and workflows on real workers, PostgreSQL and NATS, with a model of the OpenAI wire."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from services.gateway.dialects.agentos.fold import ATTEMPT_BASE
from tests.acceptance.agentos.caller import Caller, events, indices
from tests.support import agno_agents, fake_openai
from tests.support.client import Client
from tests.support.cluster import MORTAL, Cluster
from tests.support.life import finished, of_type, owner_of, paused
from tests.support.lifecycle_agents import lines
from tests.support.standing import StandingClusters
from tests.support.waiting import Stopwatch, eventually


class Provider:
    """An OpenAI endpoint without a network that counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), fake_openai.Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def requests(self, word: str) -> int:
        """How many requests had that word from the user."""
        return sum(any(role == "user" and word in text for role, text in asked) for asked in list(self.asked))

    def note(self, entry: dict[str, Any]) -> None:
        if "turns" in entry:
            self.asked.append(entry["turns"])


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    made = Provider()
    log, fake_openai.log = fake_openai.log, made.note
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()
        thread.join()
        fake_openai.log = log


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("agno")


@pytest.fixture(scope="module")
def standing(standing_clusters: StandingClusters, provider: Provider, notes: Path) -> Iterator[Cluster]:
    own = {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": provider.url, "AGNO_NOTES": str(notes)}
    with standing_clusters.start(workers=2, projectors=1, serve=agno_agents.SERVED, settings=MORTAL | own) as running:
        (notes / "dsn").write_text(running.dsn())
        yield running


@pytest.fixture
async def cluster(standing: Cluster, notes: Path) -> AsyncIterator[Cluster]:
    """Two workers; what a test has killed is mended after it."""
    (notes / "go").unlink(missing_ok=True)
    yield standing
    (notes / "go").touch()
    await standing.mend()


async def run(client: Client, agent: str, text: str) -> tuple[str, dict[str, Any]]:
    """A session with one turn, finished."""
    session = await client.create(agent)
    turn = (await client.submit(session, text))["turn_id"]
    return session, await finished(client, session, turn)


async def answer(client: Client, session: str, turn: str, call: str, **said: Any) -> None:
    body = {"answers": [{"tool_call_id": call, **said}]}
    reply = await client.request("POST", f"/v1/sessions/{session}/turns/{turn}/continue", body)
    assert reply.status_code in (200, 202), reply.text


def names(events: list[dict[str, Any]]) -> list[str]:
    return [event["name"] for event in of_type(events, "runtime.event")]


async def test_an_agent_answers_uses_tools_and_remembers(cluster: Cluster, notes: Path) -> None:
    client = cluster.client()
    session, turn = await run(client, "plain", "Call get_city_fact for Paris and Kyoto, please.")
    assert (turn["status"], turn["output"]) == ("completed", "Tool results: Paris is old | Kyoto is old")
    assert sorted(lines(notes, "facts")[-2:]) == ["Kyoto 1", "Paris 1"], "each finds its start in the database"
    second = (await client.submit(session, "Go on."))["turn_id"]
    assert "user message number 2" in (await finished(client, session, second))["output"]
    events = await client.events(session)
    assert names(events)[:4] == ["ModelRequestStarted", "ModelRequestCompleted"] * 2
    assert {"RunMetrics"} <= set(names(events))
    assert {r["output"] for r in of_type(events, "tool_result.snapshot")} == {"Paris is old", "Kyoto is old"}
    wire = repr(events) + repr(await client.messages(session)) + cluster.logs()
    assert "MARKER-7c1e" not in wire
    assert "agno.db_ignored" in cluster.logs()
    assert await cluster.check(all_terminal=False) == []


async def test_the_catalogue_tells_what_they_are(cluster: Cluster) -> None:
    rows = {row["agent_id"]: row for row in await cluster.fetch("SELECT agent_id, component, details FROM agents")}
    assert {row: rows[row]["component"] for row in ("plain", "pair", "line")} == {
        "plain": "agent", "pair": "team", "line": "workflow"
    }  # fmt: skip
    assert '"requires_confirmation":true' in rows["plain"]["details"]
    assert '"provider":"OpenAI"' in rows["plain"]["details"]
    assert "MARKER" not in rows["plain"]["details"]
    assert '"members":[' in rows["pair"]["details"]
    assert '"mode":"broadcast"' in rows["choir"]["details"]
    assert '"steps":[{"name":"say","type":"Step"}' in rows["line"]["details"]


async def test_session_state_goes_from_turn_to_turn(cluster: Cluster) -> None:
    client = cluster.client()
    session, turn = await run(client, "keeper", '[tool: remember {"word": "one"}]')
    assert turn["output"] == "Tool results: kept 1"
    second = (await client.submit(session, '[tool: remember {"word": "two"}]'))["turn_id"]
    assert (await finished(client, session, second))["output"] == "Tool results: kept 2"
    events = await client.events(session)
    states = [e["payload"] for e in of_type(events, "runtime.event") if e["name"] == "SessionState"]
    assert states[-1]["words"] == ["one", "two"]


@pytest.mark.parametrize(
    ("team", "prompt"),
    [
        (
            "pair",
            '[tool: delegate_task_to_member {"member_id": "left", "task": "get_city_fact for Paris"}] '
            '[tool: delegate_task_to_member {"member_id": "right", "task": "get_city_fact for Kyoto"}]',
        ),
        ("choir", '[tool: delegate_task_to_members {"task": "get_city_fact for Paris and Kyoto"}]'),
    ],
)
async def test_no_members_tool_runs_before_its_start_is_committed(
    cluster: Cluster, notes: Path, team: str, prompt: str
) -> None:
    """With commits of starts held for a second: two members at once, and in broadcast mode."""
    client = cluster.client()
    before = len(lines(notes, "facts"))
    earlier = {"Paris": await agno_count(cluster, "Paris"), "Kyoto": await agno_count(cluster, "Kyoto")}
    async with held_commits(cluster):
        session, turn = await run(client, team, prompt)
    assert turn["status"] == "completed", turn
    found = lines(notes, "facts")[before:]
    assert len(found) == (2 if team == "pair" else 4)
    for note in found:
        city, count = note.split()
        assert int(count) > earlier[city], "the tool ran and its start was not in the log"
    events = await client.events(session)
    scopes = {e["scope"]["id"] for e in of_type(events, "tool.started") if e.get("scope")}
    assert scopes == ({"left", "right"} if team == "pair" else {"high", "low"})
    assert names(events).count("RunStarted") == names(events).count("RunCompleted") == 2
    assert await cluster.check(all_terminal=False) == []


async def agno_count(cluster: Cluster, city: str) -> int:
    return int((await cluster.fetch(agno_agents.STARTED, city))[0][0])


class held_commits:  # noqa: N801 - reads as a statement
    """Transactions that start a tool take a second to commit."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def __aenter__(self) -> None:
        async with self._cluster.connection() as connection:
            await connection.execute(
                """
                CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                    PERFORM pg_sleep(1); RETURN NULL; END $$;
                CREATE CONSTRAINT TRIGGER held AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED
                    FOR EACH ROW WHEN (NEW.type = 'tool.started') EXECUTE FUNCTION hold();
                """
            )

    async def __aexit__(self, *_: object) -> None:
        async with self._cluster.connection() as connection:
            await connection.execute("DROP TRIGGER held ON events; DROP FUNCTION hold()")


async def test_pauses_go_on_after_a_restart_of_everything(cluster: Cluster, notes: Path) -> None:
    """An agent, a member of a team, and steps of a workflow ask; every process is started anew; people answer."""
    client = cluster.client()
    agent, team, line = [await client.create(name) for name in ("plain", "pair", "line")]
    trip = "Reserve a demonstration trip to {}."
    asked = await client.submit(agent, '[tool: reserve_trip {"destination": "Rome"}] [tool: visit {"city": "Paris"}]')
    member = '[tool: delegate_task_to_member {"member_id": "left", "task": "Reserve a demonstration trip to Oslo."}]'
    delegated = await client.submit(team, member)
    stepped = await client.submit(line, trip.format("Bonn"))
    turns = [(agent, asked["turn_id"]), (team, delegated["turn_id"]), (line, stepped["turn_id"])]
    needs = [(await paused(client, session, turn))["requirements"][0] for session, turn in turns]
    assert [(need["kind"], need["tool_name"]) for need in needs] == [("approval", "reserve_trip")] * 3
    assert needs[1]["fields"][-1]["agentos"]["member_agent_id"] == "left"
    await restart(cluster)
    client = cluster.client()
    for (session, turn), need in zip(turns, needs, strict=True):
        await answer(client, session, turn, need["tool_call_id"], approved=True)
    assert (await finished(client, *turns[0]))["output"] == "Tool results: saw Paris | reserved Rome"
    assert "reserved Oslo" in (await finished(client, *turns[1]))["output"]
    step = (await paused(client, *turns[2]))["requirements"][0]
    assert (step["kind"], step["tool_name"]) == ("approval", "shout")
    assert step["fields"][-1]["agentos"]["step_requirement"]["confirmation_message"] == "Shout it?"
    await answer(client, *turns[2], step["tool_call_id"], approved=True)
    assert (await finished(client, *turns[2]))["output"] == "TOOL RESULTS: RESERVED BONN"
    assert sorted(lines(notes, "trips")) == ["Bonn", "Oslo", "Rome"], "each ran once"
    results = of_type(await client.events(team), "tool_result.snapshot")
    assert not any("requires human input" in result["output"] for result in results)
    assert await cluster.check(all_terminal=False) == []


async def restart(cluster: Cluster) -> None:
    """Every process is killed and started again."""
    for process in cluster.processes:
        await process.kill()
    await cluster.mend()


async def test_refusals_inputs_and_work_done_elsewhere(cluster: Cluster, notes: Path) -> None:
    client = cluster.client()
    session = await client.create("plain")
    prompt = '[tool: reserve_trip {"destination": "Nowhere"}] [tool: ring {"who": "Ann"}] [tool: paint {"wall": "W"}]'
    turn = (await client.submit(session, prompt))["turn_id"]
    needs = {need["tool_name"]: need for need in (await paused(client, session, turn, 3))["requirements"]}
    assert {name: need["kind"] for name, need in needs.items()} == {
        "reserve_trip": "approval", "ring": "external", "paint": "input"
    }  # fmt: skip
    assert "colour" in [field.get("name") for field in needs["paint"]["fields"]]
    await answer(client, session, turn, needs["reserve_trip"]["tool_call_id"], approved=False, note="too far")
    await answer(client, session, turn, needs["ring"]["tool_call_id"], result="Ann says yes")
    await answer(client, session, turn, needs["paint"]["tool_call_id"], arguments={"wall": "W", "colour": "red"})
    output = (await finished(client, session, turn))["output"]
    assert sorted(output.removeprefix("Tool results: ").split(" | ")) == ["Ann says yes", "W is red", "too far"]
    assert "Nowhere" not in lines(notes, "trips")
    events = await client.events(session)
    assert len(of_type(events, "tool_result.snapshot")) == 3
    assert await cluster.check(all_terminal=False) == []


async def test_a_killed_worker_inside_a_batch(cluster: Cluster, notes: Path, provider: Provider) -> None:
    """The first tool does not run again, the model is not asked again, the second goes on elsewhere."""
    client = cluster.client()
    session = await client.create("plain")
    prompt = 'batch-of-two [tool: visit {"city": "Paris"}] [tool: visit {"city": "Lima"}]'
    before = len(lines(notes, "visits"))
    turn = (await client.submit(session, prompt))["turn_id"]
    await eventually(lambda: _has_result(client, session), "the first result is stored")
    await eventually(lambda: _noted(notes, "visits", before + 2), "both tools run")
    await (await owner_of(cluster, turn)).kill()
    await eventually(lambda: _noted(notes, "visits", before + 3), "the second tool runs again")
    (notes / "go").touch()
    ended = await finished(client, session, turn)
    assert (ended["status"], ended["output"]) == ("completed", "Tool results: saw Paris | saw Lima")
    assert ended["attempt"] == 2
    assert sorted(lines(notes, "visits")[before:]) == ["Lima", "Lima", "Paris"]
    assert provider.requests("batch-of-two") == 2, "one for the batch, one for the answer"
    events = await client.events(session)
    assert len(of_type(events, "tool_result.snapshot")) == 2
    assert await cluster.check(all_terminal=False) == []


async def _has_result(client: Client, session: str) -> bool:
    return bool(of_type(await client.events(session), "tool_result.snapshot"))


async def _noted(notes: Path, name: str, count: int) -> bool:
    return len(lines(notes, name)) >= count


async def test_a_killed_worker_inside_a_workflow(cluster: Cluster, notes: Path, provider: Provider) -> None:
    """Steps that are declared idempotent run again, with the answers that the log has; others end the turn."""
    client = cluster.client()
    sure, careful = await client.create("sure"), await client.create("careful")
    again = (await client.submit(sure, "wf-said [say: well]"))["turn_id"]
    once = (await client.submit(careful, "go"))["turn_id"]
    await eventually(lambda: _noted(notes, "surely", 1), "the second step runs")
    await eventually(lambda: _noted(notes, "lingered", 1), "the careful step runs")
    for worker in {id(await owner_of(cluster, turn)): await owner_of(cluster, turn) for turn in (again, once)}.values():
        await worker.kill()
    await cluster.mend()
    client = cluster.client()
    assert (await finished(client, careful, once))["error"]["code"] == "outcome_unknown"
    await eventually(lambda: _noted(notes, "surely", 2), "the idempotent step runs again")
    (notes / "go").touch()
    assert (await finished(client, sure, again))["output"] == "surely well"
    assert lines(notes, "lingered") == ["x"]
    assert provider.requests("wf-said") == 1
    events = await client.events(sure)
    assert names(events).count("StepStarted") == 2
    assert await cluster.check(all_terminal=False) == []


async def test_a_killed_worker_between_members_that_run_side_by_side(cluster: Cluster, notes: Path) -> None:
    """Its stream goes on at another gateway: no index twice, one gap, and the content is what the end says."""
    client = cluster.client()
    before = len(lines(notes, "visits"))
    path = "/teams/walkers/runs"
    prompt = '[tool: delegate_task_to_members {"task": "get_city_fact for Kyoto"}]'
    async with Caller(cluster.gateways[0].url + "/agentos") as caller:
        begun = await caller.post(path, message=prompt, session_id="walk", stream="false", background="true")
        run = begun.json()["run_id"]
        live = asyncio.create_task(caller.stream(f"{path}/{run}/resume", session_id="walk"))
        await eventually(lambda: _noted(notes, "visits", before + 2), "both members are on their way")
        owner = (await cluster.fetch("SELECT turn_id::text AS turn FROM claims"))[0]["turn"]
        await (await owner_of(cluster, owner)).kill()
        await eventually(lambda: _noted(notes, "visits", before + 4), "both go again")
        (notes / "go").touch()
        whole = events(await live)
        replayed = events(await caller.stream(f"{path}/{run}/resume", session_id="walk"))
    assert [y for x, y in pairwise(indices(whole)) if y != x + 1] == [ATTEMPT_BASE]
    assert whole[-1]["event"] == "TeamRunCompleted"
    text = ""
    for event in whole:
        if event["run_id"] == run and event["event"] in ("TeamRunContent", "TeamRunContinued"):
            text = event["content"] if event["event"] == "TeamRunContinued" else text + event["content"]
    assert text == whole[-1]["content"] == replayed[-1]["content"]
    assert indices(replayed) == [index for index in indices(whole) if index in set(indices(replayed))]
    started = [event["agent_id"] for event in whole if event["event"] == "ToolCallStarted"]
    assert sorted(set(started)) == ["ann", "bob"]
    assert await cluster.check(all_terminal=False) == []
    await client.close()


async def test_what_judges_find_is_listed(cluster: Cluster) -> None:
    """One of them before the run ends, one as a job."""
    async with Caller(cluster.gateways[0].url + "/agentos") as caller:
        form: dict[str, Any] = {
            "message": "[say: kind words]",
            "session_id": "judged",
            "stream": "false",
        }
        answer = await caller.post("/agents/judged/runs", **form)
        run = answer.json()
        assert run["status"] == "COMPLETED", run

        async def both() -> Any:
            found = (await caller.get("/eval-runs")).json()["data"]
            return found if len(found) == 2 and all(one["eval_data"].get("results") for one in found) else None

        found = {one["name"]: one for one in await eventually(both, "both have judged")}
        one = (await caller.get(f"/eval-runs/{found['later']['id']}")).json()
    assert set(found) == {"at_once", "later"}
    for shown in (*found.values(), one):
        (result,) = shown["eval_data"]["results"]
        assert result["output"] == run["content"] == "kind words"
        assert isinstance(result["score"], int)
        assert shown["eval_data"]["avg_score"] == result["score"]
        assert shown["agent_id"] == "judged"


async def test_an_interrupt_ends_a_run_within_a_second_and_keeps_what_was_said(cluster: Cluster) -> None:
    client = cluster.client()
    await run(client, "plain", "[say: warm]")
    session = await client.create("plain")
    stream = await client.stream(session, 0).opened()
    turn = (await client.submit(session, "[gap=0.2] [words=200]"))["turn_id"]
    await stream.event("item.delta")
    since = Stopwatch()
    await client.json("POST", f"/v1/sessions/{session}/turns/{turn}/interrupt", status=202)
    ended = await finished(client, session, turn)
    assert ended["status"] == "interrupted"
    assert since() < 3
    said = of_type(await client.events(session), "item.completed")[-1]
    assert said["partial"]
    assert said["text"].startswith("w0 ")
    waits = (await client.submit(session, "[delay=30] [say: never]"))["turn_id"]
    await eventually(lambda: _asked(client, session, waits), "the model is asked")
    since = Stopwatch()
    await client.json("POST", f"/v1/sessions/{session}/turns/{waits}/interrupt", status=202)
    assert (await finished(client, session, waits))["status"] == "interrupted"
    assert since() < 3, "also before the first word"


async def _asked(client: Client, session: str, turn: str) -> bool:
    events = [event for event in await client.events(session) if event.get("turn_id") == turn]
    return "ModelRequestStarted" in names(events)


async def test_errors_are_told_without_what_was_said(cluster: Cluster) -> None:
    client = cluster.client()
    _, failed = await run(client, "plain", "[http=401] no")
    assert failed["error"]["code"] == "model_error"
    assert "401" in failed["error"]["message"]
    assert "forced failure" not in repr(failed) + cluster.logs()
    _, refused = await run(client, "guarded", "a secret")
    assert (refused["error"]["code"], refused["error"]["message"]) == ("input_refused", "Keep it to yourself.")
    _, fine = await run(client, "guarded", "[say: fine]")
    assert fine["output"] == "fine"
