"""Many submits at once over several gateways: all are kept, in the order of acceptance, executed one at a time."""

import asyncio
from typing import Any

import pytest

from tests.support.client import Client
from tests.support.cluster import MORTAL, Cluster, Clusters
from tests.support.cutting import cutting_proxy
from tests.support.sse import Stream, assert_gapless
from tests.support.waiting import eventually

ECHO = "echo=tests.support.agents:echo"


async def flood(cluster: Cluster, submits: int) -> None:
    """All at once over every gateway; watched at each."""
    clients = [cluster.client(number) for number in range(len(cluster.gateways))]
    session = await clients[0].create("echo")
    streams = [await client.stream(session, 0).opened() for client in clients]
    asked = [clients[number % len(clients)].submit(session, f"turn {number}") for number in range(submits)]
    accepted = sorted(await asyncio.gather(*asked), key=lambda turn: turn["enqueue_sequence"])
    assert [turn["enqueue_sequence"] for turn in accepted] == list(range(1, submits + 1))
    for stream in streams:
        await stream.until(lambda stream=stream: ended(stream) == submits, what="all have ended")  # type: ignore[misc]
        assert_gapless(stream.ids)
        assert started(stream) == [turn["turn_id"] for turn in accepted]
    assert await cluster.check() == []


def ended(stream: Stream) -> int:
    return sum(frame.event == "turn.completed" for frame in stream.frames)


def started(stream: Stream) -> list[str | None]:
    return [frame.turn_id for frame in stream.committed if frame.event == "turn.started"]


async def test_c03_a_hundred_submits_at_once_over_two_gateways(cluster: Cluster) -> None:
    """effect-gates#64, harness-sdk#1176: 100 turns, run one at a time in the order of acceptance."""
    await flood(cluster, 100)


@pytest.mark.soak
async def test_c03_four_gateways_and_four_workers_counted(clusters: Clusters) -> None:
    async with clusters.start(gateways=4, agents=2, workers=4, serve=[ECHO]) as cluster:
        for _ in range(10):
            await flood(cluster, 100)


async def test_c08_the_gateway_is_killed_between_commit_and_reply(clusters: Clusters) -> None:
    """A2A#1987: the client never heard; it asks again, at the other gateway and after everything was killed and started
    again: the same turn, and another body with that key is refused."""
    async with clusters.start(gateways=2, serve=[ECHO], settings=MORTAL) as cluster:
        async with cutting_proxy(cluster.agents[0].url) as proxy:
            victim, other = cluster.gateways
            await victim.restart(TURNLOG_AGENT_URLS=proxy.url)
            await cluster.ready([victim])
            client = cluster.client(1)
            session = await client.create("echo")
            proxy.on_lost = victim.kill
            proxy.lose(1)
            path, body = f"/v1/sessions/{session}/turns", {"input": "once"}
            asked = await asyncio.gather(
                cluster.client(0).request("POST", path, body, Idempotency_Key="k"), return_exceptions=True
            )
            assert isinstance(asked[0], Exception), "the client heard nothing"
            assert proxy.lost == 1
            turns = (await client.json("GET", path))["items"]
            reply = await client.submit(session, "once", "k")
            assert [turn["turn_id"] for turn in turns] == [reply["turn_id"]]
        await victim.start(TURNLOG_AGENT_URLS=other.env["TURNLOG_AGENT_URLS"])
        await asyncio.gather(*(process.kill() for process in cluster.processes))
        await asyncio.gather(*(process.start() for process in cluster.processes))
        await cluster.ready()
        for gateway in range(2):
            again = cluster.client(gateway)
            answer = await again.request("POST", path, body, Idempotency_Key="k")
            assert (answer.status_code, answer.json()) == (202, reply)
            assert answer.headers["Idempotency-Replayed"] == "true"
            refused = await again.request("POST", path, {"input": "twice"}, Idempotency_Key="k")
            assert refused.status_code == 409
        await done(client=cluster.client(0), session=session, turn=reply["turn_id"])
        assert len((await cluster.client(0).json("GET", path))["items"]) == 1
        assert await cluster.check() == []


async def done(client: Client, session: str, turn: str) -> dict[str, Any]:
    async def over() -> dict[str, Any] | None:
        seen = await client.turn(session, turn)
        return seen if seen["finished_at"] else None

    return await eventually(over, "the turn ends") or {}
