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
from tests.acceptance.agentos import test_access as access
from tests.acceptance.agentos import test_streams as streams
from tests.acceptance.agentos.caller import Caller
from tests.acceptance.agentos.contract.rules import Comparison, rows
from tests.acceptance.agentos.contract.seen import Seen
from tests.acceptance.agentos.contract.story import told
from tests.acceptance.agentos.definitions import SERVED
from tests.support import fake_openai
from tests.support.cluster import Cluster
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
    with standing_clusters.start(serve=SERVED, settings=model) as running:
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
