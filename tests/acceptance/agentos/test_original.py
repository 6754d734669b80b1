"""Side by side with Agno's AgentOS, and driven by Agno's own client: the same objects, the same model."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest
from agno.client import AgentOSClient

from infra.embedded.place import free_port
from services.gateway.dialects.agentos.fold import ATTEMPT_BASE
from tests.acceptance.agentos import test_access as access
from tests.acceptance.agentos import test_streams as streams
from tests.acceptance.agentos.caller import Caller, Event, events, indices
from tests.acceptance.agentos.contract.deciding import ACT
from tests.acceptance.agentos.contract.rules import Comparison, rows
from tests.acceptance.agentos.contract.seen import Seen
from tests.acceptance.agentos.contract.story import told
from tests.acceptance.agentos.definitions import SERVED
from tests.acceptance.agentos.driving import Drive, sessions_of
from tests.support import fake_openai
from tests.support.cluster import MORTAL, Cluster
from tests.support.sse import SseParser
from tests.support.standing import StandingClusters
from tests.support.waiting import PATIENCE, eventually

ROOT = Path(__file__).parents[3]


class Endpoint(ThreadingHTTPServer):
    """Two servers ask at once, for many runs each."""

    request_queue_size = 128
    daemon_threads = True


@pytest.fixture(scope="module")
def model() -> Iterator[dict[str, str]]:
    """A model's endpoint, and the variables that lead to it."""
    fake_openai.DEFAULT_DELAY, fake_openai.DEFAULT_GAP = 0.0, 0.005
    server = Endpoint(("127.0.0.1", 0), fake_openai.Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    yield {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1", "AGNO_TELEMETRY": "false"}
    server.shutdown()


@pytest.fixture(scope="module")
def original(model: dict[str, str]) -> Iterator[str]:
    """AgentOS; it may still be starting."""
    port = free_port()
    command = [sys.executable, "-m", "tests.acceptance.agentos.reference", str(port)]
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **model}, **quiet)
    yield f"http://127.0.0.1:{port}"
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def standing(standing_clusters: StandingClusters, model: dict[str, str], original: str) -> Iterator[Cluster]:
    with standing_clusters.start(gateways=2, serve=SERVED, settings=MORTAL | model) as running:
        yield running


@pytest.fixture
async def ours(cluster: Cluster) -> str:
    return cluster.gateways[0].url + "/agentos"


async def seen_at(url: str) -> list[Seen]:
    async with Caller(url) as caller:

        async def answers() -> bool:
            try:
                return (await caller.get("/health")).status_code == 200
            except httpx2.TransportError:
                return False

        await eventually(answers, f"{url} answers", timeout=2 * PATIENCE)
        return await told(caller)


ELSEWHERE = {
    "resume-any": [
        streams.test_cut_after_every_event_and_resumed_at_the_other_gateway,
        streams.test_cut_after_every_event_across_a_pause_a_restart_of_everything_included,
    ],
    "session-owners": [access.test_what_is_anothers_is_nowhere],
    "stream-cut": [access.test_a_stream_that_the_server_cuts_says_so],
}
"""Rows that take several processes, tokens or a fault to show -> the tests that do."""


async def test_the_same_answers_as_the_original_but_for_the_table(original: str, ours: str) -> None:
    there, here = await asyncio.gather(seen_at(original), seen_at(ours))
    comparison = Comparison()
    comparison.compare(there, here)
    assert not comparison.faults, "\n".join(comparison.faults)
    needed = comparison.used | set(ELSEWHERE)
    assert rows() - needed == set(), "rows that explain nothing any more"
    assert needed - rows() == set(), "differences that have no row"


async def test_agnos_own_client_drives_an_agent_a_team_and_a_workflow(ours: str) -> None:
    client = AgentOSClient(base_url=ours)
    config = await client.aget_config()
    assert {agent.id for agent in config.agents or []} >= {"plain", "tooled"}
    assert {team.id for team in await client.list_teams()} == {"crew", "duo"}
    assert {flow.id for flow in await client.list_workflows()} == {"flow", "gated", "halting"}
    assert (await client.aget_agent("tooled")).name == "Tooled"
    for kind, component, asking, message in (
        ("agent", "plain", "tooled", ACT),
        ("team", "crew", "crew", ACT),
        ("workflow", "flow", "gated", "[say: hi]"),
    ):
        drive = Drive(client, kind)
        await drive.runs(component)
        await drive.asks(asking, message)
        await drive.is_cancelled(component)
    await sessions_of(client)


SPEECH = f"[gap=0.1] [say: {' '.join(f'word{number}' for number in range(20))}]"


async def test_teams_and_workflows_cut_after_every_event_and_resumed_at_the_other_gateway(a: Caller, b: Caller) -> None:
    """Both while they run and from the log."""
    for kind, component, message in (
        ("teams", "duo", both("[gap=0.05] [say: so it is said]")),
        ("workflows", "flow", "[gap=0.05] [words=6]"),
    ):
        form: dict[str, Any] = {
            "message": message,
            "session_id": f"cut-{component}",
            "background": "true",
            "stream": "false",
        }
        run = (await a.post(f"/{kind}/{component}/runs", **form)).json()["run_id"]
        there = (component, run, f"cut-{component}")
        live = asyncio.create_task(b.resume(*there, None, kind=kind))

        async def cut(after: int, there: tuple[str, str, str] = there, kind: str = kind) -> list[Event]:
            first = await a.resume(*there, None, after, kind=kind)
            return [*first, *await b.resume(*there, first[-1]["event_index"], kind=kind)]

        tries = await asyncio.gather(*(cut(k + 3) for k in range(12)))
        whole = await live
        assert indices(whole) == list(range(len(whole)))
        assert_said(whole)
        for tried in tries:
            assert tried == whole
        await assert_the_same_from_everywhere(a, b, there, kind, whole)


async def test_a_cancelled_workflow_keeps_its_step_results(a: Caller, b: Caller) -> None:
    """And its stream ends with the pair."""
    runs, session = "/workflows/halting/runs", "halted"
    content = b""
    async with a.http.stream("POST", runs, data={"message": "[say: hi]", "session_id": session}) as answer:
        async for chunk in answer.aiter_bytes():
            content += chunk
            found = SseParser().feed(content)
            if [frame.event for frame in found].count("StepStarted") == 2 and b"WorkflowCancelled" not in content:
                run = json.loads(found[0].data)["run_id"]
                assert (await b.post(f"{runs}/{run}/cancel")).status_code == 200
    seen = events(SseParser().feed(content))
    assert [event["event"] for event in seen[-2:]] == ["WorkflowCancelled", "WorkflowCompleted"]
    run = (await b.get(f"{runs}/{seen[0]['run_id']}", session_id=session)).json()
    assert run["status"] == "CANCELLED"
    for kept in (run["step_results"], seen[-1]["step_results"]):
        assert [(step["step_name"], step["content"]) for step in kept] == [("one", "hi")]
    assert_said(seen)


async def test_over_a_pause_and_the_death_of_everything(cluster: Cluster, a: Caller) -> None:
    """A team and a workflow ask, two members of a team speak at once; every process is killed and started again."""
    asked = {}
    for kind, component, message in (("teams", "crew", ACT), ("workflows", "gated", "[say: hi]")):
        form: dict[str, Any] = {"message": message, "session_id": f"pause-{component}", "background": "true"}
        asked[kind, component] = events(await a.stream(f"/{kind}/{component}/runs", **form))
    form = {"message": both(SPEECH), "session_id": "speak", "background": "true", "stream": "false"}
    run = (await a.post("/teams/duo/runs", **form)).json()["run_id"]

    async def both_speak() -> list[Event] | None:
        seen: list[Event] = await a.resume("duo", run, "speak", None, 20, kind="teams")
        return (
            seen
            if {event["agent_id"] for event in seen if event["event"] == "RunContent"} == {"left", "right"}
            else None
        )

    before = await eventually(both_speak, "both members speak") or []
    for process in cluster.processes:
        await process.kill()
    await cluster.mend()
    async with (
        Caller(cluster.gateways[0].url + "/agentos") as first,
        Caller(cluster.gateways[1].url + "/agentos") as second,
    ):
        for (kind, component), seen in asked.items():
            there = (component, seen[0]["run_id"], f"pause-{component}")
            whole = seen + events(await second.stream(f"/{kind}/{component}/runs/{there[1]}/continue", **yes(seen)))
            assert indices(whole) == list(range(len(whole)))
            assert whole[-1]["event"] in ("TeamRunCompleted", "WorkflowCompleted")
            assert_said(whole)
            await assert_the_same_from_everywhere(first, second, there, kind, whole)
        there = ("duo", run, "speak")
        rest = await second.resume(*there, before[-1]["event_index"], kind="teams")
        assert_said(before + rest)
        assert rest[-1]["event"] == "TeamRunCompleted", rest[-1]
        whole = await first.resume(*there, None, kind="teams")
        jumps = [(x, y) for x, y in pairwise(indices(whole)) if y != x + 1]
        assert [y for _, y in jumps] == [ATTEMPT_BASE], "one gap, where everything died"
        assert_said(whole)
        await assert_the_same_from_everywhere(first, second, there, "teams", whole)


def both(task: str) -> str:
    """Two members are told at once."""
    told = [json.dumps({"member_id": name, "task": task}) for name in ("left", "right")]
    return " ".join(f"[tool: delegate_task_to_member {one}]" for one in told)


def yes(seen: list[Event]) -> dict[str, Any]:
    """The form that allows what a paused run asks."""
    last = seen[-1]
    if last["event"] == "WorkflowPaused":
        said = [{**one, "confirmed": True} for one in last["step_requirements"]]
        return {"session_id": last["session_id"], "step_requirements": json.dumps(said)}
    said = [{**one, "confirmation": True} for one in last["requirements"]]
    return {"session_id": last["session_id"], "requirements": json.dumps(said)}


def assert_said(found: list[Event]) -> None:
    """Of every run in the stream: its pieces, put together as a client does, are what it says at its end."""
    texts: dict[str, str] = {}
    for event in found:
        name, run = event["event"].removeprefix("Team"), event["run_id"]
        assert ("status" in event) == (name == "WorkflowPaused")
        if name == "RunContinued" and "content" in event:
            texts[run] = event["content"]
        elif name == "RunContent":
            texts[run] = texts.get(run, "") + event["content"]
        elif name == "RunCompleted":
            assert texts.get(run, "") == event["content"], run


async def assert_the_same_from_everywhere(
    a: Caller, b: Caller, there: tuple[str, str, str], kind: str, whole: list[Event]
) -> None:
    for number, event in enumerate(whole):
        rest = await (a, b)[number % 2].resume(*there, event["event_index"], kind=kind)
        assert rest == whole[number + 1 :]
