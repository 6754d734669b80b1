"""People who refresh, hang up, come back and stop: what they see is the turn, and only a stop stops it."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Client, terminal
from tests.support.cluster import Cluster, streams_made
from tests.support.life import SERVED, approve, finished, paused
from tests.support.lifecycle_agents import lines
from tests.support.reducer import view
from tests.support.sse import Stream
from tests.support.standing import StandingClusters
from tests.support.waiting import eventually

AGENTS = [*SERVED, "broken=tests.support.agents:broken", "blocking=tests.support.blocking_agents:blocking"]


@pytest.fixture(scope="module")
def standing(standing_clusters: StandingClusters) -> Iterator[Cluster]:
    """Two gateways, one worker."""
    with standing_clusters.start(gateways=2, serve=AGENTS) as running:
        yield running


async def text_of(client: Client, session: str, turn: str) -> str:
    """What the assistant said in that turn, as the Message has it."""
    said = [one for one in await client.messages(session) if one["turn_id"] == turn and one["role"] == "assistant"]
    return "".join(part["text"] for message in said for part in message["parts"])


async def whole_view(client: Client, session: str) -> Stream:
    """A page that was opened just now, up to the head."""
    head = (await client.json("GET", f"/v1/sessions/{session}/status"))["last_sequence"]
    stream = client.stream(session, 0)
    await stream.sequence(head)
    return stream


async def test_p02_a_refresh_in_each_state_shows_that_state(cluster: Cluster, tmp_path: Path) -> None:
    """The turn's status, its input and what was said so far; regenerate only from a defined state."""
    # What is said before the broker has its streams is kept nowhere until its item is complete.
    await streams_made(cluster)
    a, b = cluster.client(0), cluster.client(1)
    go = tmp_path / "go"
    ask = json.dumps({"directory": str(tmp_path), "calls": 1, "rounds": 1})
    for agent, text, state in (
        ("hold", str(go), "running"),
        ("approver", ask, "paused"),
        ("echo", "said", "completed"),
        ("broken", "x", "failed"),
        ("slow", "1000 0.02", "interrupted"),
        ("hold", str(go), "queued"),
        ("hold", str(go), "cancelled"),
    ):
        session = await a.create(agent)
        turn: str = (await a.submit(session, text))["turn_id"]
        if state in ("queued", "cancelled"):
            turn = (await a.submit(session, text))["turn_id"]
        if state == "cancelled":
            await a.json("POST", f"/v1/sessions/{session}/turns/{turn}/cancel")
        if state == "interrupted":
            await a.stream(session, 0).event("item.delta")
            await a.json("POST", f"/v1/sessions/{session}/turns/{turn}/interrupt", status=202)

        async def reached(session: str = session, turn: str = turn, state: str = state) -> bool:
            return bool((await a.turn(session, turn))["status"] == state)

        await eventually(reached, f"the turn is {state}")
        for client in (a, b):
            stream = await whole_view(client, session)
            assert view(stream.frames).status[turn] == state
            opened = stream.frames[0].json
            if state in ("running", "paused"):
                assert opened["active_turn_id"] == turn
            if state == "running":
                await stream.until(lambda seen=stream: view(seen.frames).text() == "holding ", what="the text so far")  # type: ignore[misc]
            elif state in ("failed", "interrupted"):
                assert view(stream.frames).text() == await text_of(client, session, turn) != ""
            await stream.close()
        again = await b.request("POST", f"/v1/sessions/{session}/turns/{turn}/regenerate", {})
        assert again.status_code == (202 if state in ("completed", "failed", "interrupted", "cancelled") else 409), (
            state
        )
    go.touch()


async def test_p08_everybody_leaves_at_the_first_event_and_the_turn_completes(cluster: Cluster) -> None:
    """The same text as with somebody watching."""
    a, b = cluster.client(0), cluster.client(1)
    session = await a.create("slow")
    streams = [await client.stream(session, 0).opened() for client in (a, b)]
    turn = (await a.submit(session, "20 0.01"))["turn_id"]
    await asyncio.gather(*(stream.event("turn.queued") for stream in streams))
    await asyncio.gather(*(stream.close() for stream in streams))
    assert (await finished(b, session, turn))["status"] == "completed"
    assert await text_of(b, session, turn) == "".join(f"{number} " for number in range(20))
    seen = view((await whole_view(b, session)).frames)
    assert (seen.text(), seen.status[turn]) == (await text_of(b, session, turn), "completed")


async def test_x03_a_hung_up_stream_stops_nothing_and_a_stop_stops_in_both_orders(cluster: Cluster) -> None:
    a, b = cluster.client(0), cluster.client(1)
    for hang_up_first in (True, False):
        session = await a.create("slow")
        stream = a.stream(session, 0)
        turn = (await a.submit(session, "1000 0.02"))["turn_id"]
        await stream.event("item.delta")
        if hang_up_first:
            await stream.close()
            # It goes on without anybody.
            other = b.stream(session, 0)
            await other.until(lambda seen=other: len(view(seen.frames).text()) > 40, what="more text")  # type: ignore[misc]
            assert (await a.turn(session, turn))["status"] == "running"
        await b.json("POST", f"/v1/sessions/{session}/turns/{turn}/interrupt", status=202)
        await stream.close()
        assert (await finished(a, session, turn))["status"] == "interrupted"
        assert 0 < len(await text_of(a, session, turn)) < 3000


async def test_x04_a_stop_from_any_connection(cluster: Cluster) -> None:
    """From the connection after a refresh, and from a third tab at another gateway."""
    a, b = cluster.client(0), cluster.client(1)
    for stopper in (a, b):
        session = await a.create("slow")
        turn = (await a.submit(session, "1000 0.02"))["turn_id"]
        first = a.stream(session, 0)
        await first.event("item.delta")
        await first.close()
        refreshed = a.stream(session, 0)
        await refreshed.until(lambda seen=refreshed: view(seen.frames).text() != "", what="the text so far")  # type: ignore[misc]
        await stopper.json("POST", f"/v1/sessions/{session}/turns/{turn}/interrupt", status=202)
        assert (await terminal(refreshed, turn)).event == "turn.interrupted"
        assert view(refreshed.frames).text() == await text_of(b, session, turn)


async def test_a_blocked_worker_keeps_nobody_from_joining(cluster: Cluster, tmp_path: Path) -> None:
    """While a synchronous tool blocks the worker's loop: those who watch know that it runs, those who join see what
    there is within a second."""
    a, b = cluster.client(0), cluster.client(1)
    session = await a.create("blocking")
    watching = await a.stream(session, 0).opened()
    turn = (await a.submit(session, f"3 {tmp_path}"))["turn_id"]

    async def began() -> bool:
        return bool(lines(tmp_path, "began"))

    await eventually(began, "the tool has begun")
    loop = asyncio.get_running_loop()
    since = loop.time()
    await watching.event("tool.started", timeout=1.0)
    for client in (a, b):
        joining = client.stream(session, 0)
        await joining.event("tool.started", timeout=1.0)
        assert view(joining.frames).text() == "Before. "
    assert not lines(tmp_path, "ended"), loop.time() - since
    assert (await terminal(watching, turn)).event == "turn.completed"
    assert view(watching.frames).text() == "Before. After." == await text_of(b, session, turn)


async def test_a_page_that_joins_a_paused_turn_can_answer_it(cluster: Cluster, tmp_path: Path) -> None:
    a, b = cluster.client(0), cluster.client(1)
    session = await a.create("approver")
    ask: dict[str, Any] = {"directory": str(tmp_path), "calls": 1, "rounds": 1}
    turn = (await a.submit(session, json.dumps(ask)))["turn_id"]
    needs = (await paused(a, session, turn))["requirements"]
    joining = await whole_view(b, session)
    assert await approve(b, session, turn, needs[0]["tool_call_id"]) == 202
    assert (await terminal(joining, turn)).event == "turn.completed"
    assert view(joining.frames).text() == await text_of(a, session, turn)
