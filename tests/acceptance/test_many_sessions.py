"""Many sessions at once over two of each role: every viewer gets 1..n, and no session ever has two active turns."""

import asyncio
from typing import Any

import pytest

from tests.support.client import Client
from tests.support.cluster import Cluster
from tests.support.sse import Stream, assert_gapless

TURNS = 10


async def test_c03_many_sessions_of_ten_turns(cluster: Cluster) -> None:
    """C03: submitted in turn at both gateways, watched at the other one; executed in the order of acceptance."""
    await converse(cluster, 25)


@pytest.mark.soak
async def test_c03_fifty_sessions_of_ten_turns(cluster: Cluster) -> None:
    """Ten times in a row, in the same installation."""
    for _ in range(10):
        await converse(cluster, 50)


async def converse(cluster: Cluster, count: int) -> None:
    """So many sessions at once; all events of all of them are judged at the end."""
    clients = (cluster.client(0), cluster.client(1))
    sessions = await asyncio.gather(*(clients[n % 2].create("echo") for n in range(count)))
    streams = [clients[(n + 1) % 2].stream(session, 0) for n, session in enumerate(sessions)]
    queues = await asyncio.gather(*(fill(clients, session) for session in sessions))
    await asyncio.gather(*(ended(stream) for stream in streams))
    for stream, turns in zip(streams, queues, strict=True):
        assert_gapless(stream.ids)
        assert only_one_active(stream) == [turn["turn_id"] for turn in turns]
    assert await cluster.check() == []


async def fill(clients: tuple[Client, Client], session: str) -> list[dict[str, Any]]:
    """Submit all turns of one session at once, at either gateway; returns them in the order of acceptance."""
    submits = (accepted(clients[n % 2], session, n) for n in range(TURNS))
    return sorted(await asyncio.gather(*submits), key=lambda turn: int(turn["enqueue_sequence"]))


async def accepted(client: Client, session: str, number: int) -> dict[str, Any]:
    """As clients do: a 503 (a session that is locked for too long is one) is tried again with the same key."""
    path, body, key = f"/v1/sessions/{session}/turns", {"input": f"turn {number}"}, f"key {number}"
    for _ in range(20):
        answer = await client.request("POST", path, body, Idempotency_Key=key)
        if answer.status_code != 503:
            break
        await asyncio.sleep(float(answer.headers["Retry-After"]))
    assert answer.status_code == 202, answer.text
    reply: dict[str, Any] = answer.json()
    return reply


async def ended(stream: Stream) -> None:
    def all_completed() -> bool:
        return sum(frame.event == "turn.completed" for frame in stream.frames) == TURNS

    await stream.until(all_completed, what=f"{TURNS} turns are completed")


def only_one_active(stream: Stream) -> list[str | None]:
    """Turns in the order in which they ran; fails where one starts before the last has ended."""
    order: list[str | None] = []
    active = None
    for frame in stream.committed:
        if frame.event == "turn.started":
            assert active is None
            active = frame.turn_id
            order.append(active)
        elif frame.event == "turn.completed":
            assert frame.turn_id == active
            active = None
    return order
