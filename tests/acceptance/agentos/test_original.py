"""Side by side with Agno's AgentOS, and driven by Agno's own client: the same objects, the same model."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
from agno.client import AgentOSClient

from infra.embedded.place import free_port
from tests.acceptance.agentos.caller import Caller
from tests.acceptance.agentos.contract import Seen, Story
from tests.acceptance.agentos.definitions import SERVED
from tests.support import fake_openai
from tests.support.cluster import Cluster
from tests.support.standing import StandingClusters
from tests.support.waiting import PATIENCE, eventually

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def model() -> Iterator[dict[str, str]]:
    """A model's endpoint, and the variables that lead to it."""
    fake_openai.DEFAULT_DELAY, fake_openai.DEFAULT_GAP = 0.0, 0.005
    server = ThreadingHTTPServer(("127.0.0.1", 0), fake_openai.Handler)
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
    with standing_clusters.start(serve=SERVED, settings=model) as running:
        yield running


@pytest.fixture
async def ours(cluster: Cluster) -> str:
    return cluster.gateways[0].url + "/agentos"


async def told(url: str) -> list[Seen]:
    async with Caller(url) as caller:

        async def answers() -> bool:
            try:
                return (await caller.get("/health")).status_code == 200
            except httpx2.TransportError:
                return False

        await eventually(answers, f"{url} answers", timeout=PATIENCE)
        story = Story(caller)
        await story.tell()
        return story.seen


async def test_the_same_answers_as_the_original_but_for_the_table(original: str, ours: str) -> None:
    there, here = await asyncio.gather(told(original), told(ours))
    assert [seen.label for seen in there] == [seen.label for seen in here]
    table = (ROOT / "docs" / "agentos.md").read_text()
    wrong: list[Any] = []
    for one, other in zip(there, here, strict=True):
        if one.deviation is None and one.shape != other.shape:
            wrong.append((one.label, "original", one.shape, "ours", other.shape))
        elif one.deviation is not None:
            if f"`{one.deviation}`" not in table:
                wrong.append((one.label, f"no line of the table is {one.deviation}"))
            if one.shape == other.shape:
                wrong.append((one.label, "no deviation any more"))
    assert not wrong, "\n".join(str(one) for one in wrong)


async def test_agnos_own_client_drives_an_agent_a_team_and_a_workflow(ours: str) -> None:
    client = AgentOSClient(base_url=ours)
    config = await client.aget_config()
    assert {agent.id for agent in config.agents or []} >= {"plain", "tooled"}
    assert [team.id for team in await client.list_teams()] == ["crew"]
    assert {flow.id for flow in await client.list_workflows()} == {"flow", "gated"}
    assert (await client.aget_agent("tooled")).name == "Tooled"

    run = await client.run_agent("plain", message="[say: hello there]", session_id="client")
    assert (run.content, run.session_id) == ("hello there", "client")
    streamed = [
        event async for event in client.run_agent_stream("plain", message="[say: one two]", session_id="client")
    ]
    assert [event.event for event in streamed][-1] == "RunCompleted"
    assert "".join(str(event.content) for event in streamed if event.event == "RunContent") == "one two"

    asked = await client.run_agent("tooled", message='[tool: act {"what": "x"}]', session_id="client-asks")
    assert asked.is_paused
    for one in asked.tools or []:
        one.confirmed = True
    done = await client.continue_agent_run("tooled", str(asked.run_id), asked.tools or [], session_id="client-asks")
    assert str(done.content) == "Tool results: did x"
    assert done.run_id == asked.run_id

    slow = await client._apost(
        "/agents/plain/runs",
        {"message": "[words=200][gap=0.05]", "background": "true", "stream": "false", "session_id": "client-slow"},
        as_form=True,
    )
    await client.cancel_agent_run("plain", slow["run_id"])

    async def cancelled() -> bool:
        found = await client.get_session_runs("client-slow")
        return str(getattr(found[0].status, "value", found[0].status)) == "CANCELLED"

    await eventually(cancelled, "the run is cancelled")

    team = await client.run_team("crew", message="[say: hi team]", session_id="client-team")
    assert team.content == "hi team"
    events = [
        event.event async for event in client.run_team_stream("crew", message="[say: a]", session_id="client-team")
    ]
    assert events[0] == "TeamRunStarted"
    assert events[-1] == "TeamRunCompleted"
    flow = await client.run_workflow("flow", message="[say: hi]", session_id="client-flow")
    assert flow.status == "COMPLETED"
    names = [e.event async for e in client.run_workflow_stream("flow", message="[say: hi]", session_id="client-flow")]
    assert names[0] == "WorkflowStarted"
    assert names[-1] == "WorkflowCompleted"
    gated = await client.run_workflow("gated", message="[say: hi]", session_id="client-gated")
    requirements = gated.step_requirements or []
    requirements[0].confirm()
    finished = await client.continue_workflow_run(
        "gated", str(gated.run_id), [one.to_dict() for one in requirements], session_id="client-gated"
    )
    assert finished.status == "COMPLETED"

    sessions = await client.get_sessions()
    assert {row.session_id for row in sessions.data} >= {"client", "client-team", "client-flow"}
    assert (await client.get_session("client")).session_name == "[say: hello there]"
    assert len(await client.get_session_runs("client")) == 2
    renamed = await client.rename_session("client", "Another")
    assert renamed.session_name == "Another"
    await client.delete_session("client")
