"""The worker process on real PostgreSQL and NATS: gate, recorder, history, leases, drain."""

import json
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any

import pytest

from domain.frames import LiveItemDelta
from tests.support import execution_agents, model_agents
from tests.support.client import Client, finished, terminal
from tests.support.cluster import Cluster
from tests.support.fake_openai import Handler
from tests.support.sse import assert_gapless
from tests.support.standing import StandingClusters

KIB, MIB = 1024, 1024 * 1024

SERVED = [
    "demo=services.worker.demo:agent",
    "slow=tests.support.agents:slow",
    "bulk=tests.support.agents:bulk",
    "bulky_tool=tests.support.agents:bulky_tool",
    *(f"{name}=tests.support.execution_agents:{name}" for name in execution_agents.AGENTS),
    *(f"{name}=tests.support.model_agents:{name}" for name in model_agents.AGENTS),
]


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """An OpenAI endpoint without a network; its base URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def standing(standing_clusters: StandingClusters, provider: str) -> Iterator[Cluster]:
    """Two workers."""
    settings = {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": provider}
    with standing_clusters.start(workers=2, serve=SERVED, settings=settings) as running:
        yield running


async def run(client: Client, agent: str, text: str) -> tuple[str, dict[str, Any]]:
    """A session with one turn, finished."""
    session = await client.create(agent)
    turn = (await client.submit(session, text))["turn_id"]
    return session, await finished(client, session, turn)


def of_type(events: list[dict[str, Any]], type_: str) -> list[dict[str, Any]]:
    return [event["data"] for event in events if event["type"] == type_]


async def test_the_demonstration_agent_streams_and_uses_its_tools(cluster: Cluster) -> None:
    client = cluster.client()
    session = await client.create("demo")
    stream = await client.stream(session, 0).opened()
    turn = (await client.submit(session, "calculate 12*7 and tell me what time is it"))["turn_id"]
    await terminal(stream, turn)
    assert_gapless(stream.ids)
    kinds = {frame.event for frame in stream.frames}
    assert {"item.started", "item.delta", "item.completed", "tool.started", "tool_result.snapshot"} <= kinds
    assert {"checkpoint.reached", "usage.recorded", "turn.completed"} <= kinds
    assert (await client.turn(session, turn))["output"].startswith("The result is 84.")
    assert await cluster.check(all_terminal=False) == []


async def test_a_callables_tool_finds_its_start_in_the_database(cluster: Cluster) -> None:
    session, turn = await run(cluster.client(), "look", cluster.dsn())
    assert turn["status"] == "completed"
    events = await cluster.client().events(session)
    assert int(of_type(events, "tool_result.snapshot")[0]["output"].split()[1]) >= 1


async def test_each_of_parallel_tools_finds_its_start_in_the_database(cluster: Cluster) -> None:
    _, turn = await run(cluster.client(), "inspector", cluster.dsn())
    assert turn["output"] == "found 1 found 1 found 1"


async def test_a_marker_in_the_system_prompt_is_nowhere(cluster: Cluster) -> None:
    """Invariant 13: not on the wire, not in a replay, not in a read model, not in a log."""
    client = cluster.client()
    for agent, text in (("inspector", cluster.dsn()), ("openai", "[http=400] hello"), ("openai", "[say: hi there]")):
        session = await client.create(agent)
        stream = await client.stream(session, 0).opened()
        turn = (await client.submit(session, text))["turn_id"]
        await terminal(stream, turn)
        wire = repr(stream.frames)
        wire += json.dumps(await client.events(session)) + json.dumps(await client.messages(session))
        wire += json.dumps(await client.json("GET", f"/v1/sessions/{session}/turns"))
        assert model_agents.MARKER not in wire
        (private,) = await cluster.fetch(
            "SELECT count(*) FROM events WHERE session_id = $1::uuid AND position($2::bytea IN private) > 0",
            session,
            model_agents.MARKER.encode(),
        )
        assert private[0] > 0, "it is kept where it belongs"
    assert model_agents.MARKER not in cluster.logs()


async def test_a_real_models_wire(cluster: Cluster) -> None:
    """The OpenAI wire: text, two batches of tools, and an error of the provider."""
    client = cluster.client()
    session, said = await run(client, "openai", "[say: five words are said here]")
    assert said["output"].split() == ["five", "words", "are", "said", "here"]
    prompt = '[tool: add {"a": 1, "b": 2}] [tool: add {"a": 3, "b": 4}] [again: add {"a": 5, "b": 6}]'
    turn = (await client.submit(session, prompt))["turn_id"]
    assert (await finished(client, session, turn))["output"] == "Tool results: 3 | 7 | 11"
    bad = (await client.submit(session, "[http=401] no"))["turn_id"]
    error = (await finished(client, session, bad))["error"]
    assert error["code"] == "model_error"
    assert "401" in error["message"]
    assert "forced failure" not in error["message"]


async def test_c04_consecutive_turns_see_exactly_the_ones_before(cluster: Cluster) -> None:
    """C04: state is read after the claim: turn 2 sees u1 a1 u2, though all were queued at once."""
    client = cluster.client()
    session = await client.create("recall")
    turns = [(await client.submit(session, f"u{number}"))["turn_id"] for number in (1, 2, 3)]
    outputs = [(await finished(client, session, turn))["output"] for turn in turns]
    u1, u2, u3 = (["user", f"u{number}"] for number in (1, 2, 3))
    assert json.loads(outputs[0]) == [u1]
    assert json.loads(outputs[1]) == [u1, ["assistant", outputs[0]], u2]
    assert json.loads(outputs[2]) == [u1, ["assistant", outputs[0]], u2, ["assistant", outputs[1]], u3]


@pytest.mark.parametrize("size", [1, 64 * KIB, 64 * KIB + 1, MIB - 1, MIB + 1, 20 * MIB])
async def test_d12_tool_outputs_of_any_size(cluster: Cluster, size: int) -> None:
    """D12: stored up to 64 KiB with the true size; the cursor passes, whatever the size was."""
    client = cluster.client()
    session, turn = await run(client, "bulky_tool", str(size))
    assert turn["status"] == "completed"
    stream = client.stream(session, 0)
    await terminal(stream, turn["turn_id"])
    assert_gapless(stream.ids)
    (result,) = of_type(await client.events(session), "tool_result.snapshot")
    assert result["output"] == "x" * min(size, 64 * KIB)
    assert result["original_bytes"] == size
    assert result["stored_bytes"] == min(size, 64 * KIB)
    assert result.get("truncated", False) == (size > 64 * KIB)


@pytest.mark.parametrize("size", [1, 256 * KIB, MIB + 1, 20 * MIB])
async def test_d12_texts_of_any_size(cluster: Cluster, size: int) -> None:
    """D12: texts are split at 256 KiB and linked; together they are the whole text."""
    client = cluster.client()
    session, turn = await run(client, "bulk", str(size))
    assert turn["status"] == "completed"
    rows = await cluster.fetch(
        "SELECT length(payload ->> 'text') AS n, octet_length(payload::text) AS bytes,"
        " payload ->> 'continues' AS before,"
        " payload ->> 'item_id' AS item FROM events WHERE session_id = $1::uuid AND type = 'item.completed'"
        " ORDER BY sequence",
        session,
    )
    assert sum(row["n"] for row in rows) == size
    assert max(row["bytes"] for row in rows) <= 260 * KIB
    assert [row["before"] for row in rows[1:]] == [row["item"] for row in rows[:-1]]
    head = (await client.json("GET", f"/v1/sessions/{session}/status"))["last_sequence"]
    late = client.stream(session, head - 1)
    await terminal(late, turn["turn_id"])


async def test_deltas_that_viewers_saw_are_what_the_log_gives_back(cluster: Cluster) -> None:
    """Invariant 10, with real frames: text and cuts of the item are the deltas."""
    client = cluster.client()
    session = await client.create("slow")
    stream = await client.stream(session, 0).opened()
    turn = (await client.submit(session, "30 0.005"))["turn_id"]
    await terminal(stream, turn)
    deltas = [frame.json["data"] for frame in stream.frames if frame.event == LiveItemDelta.type]
    (item,) = of_type(await client.events(session), "item.completed")
    assert [len(delta["text"]) for delta in deltas] == item["frames"]["cuts"]
    assert "".join(delta["text"] for delta in deltas) == item["text"]
    assert [delta["index"] for delta in deltas] == list(range(len(deltas)))
