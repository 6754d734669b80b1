"""What tests of the life of turns ask of a running cluster."""

from typing import Any

from tests.support.client import Client
from tests.support.cluster import Cluster
from tests.support.lifecycle_agents import AGENTS
from tests.support.processes import RoleProcess
from tests.support.waiting import PATIENCE, eventually

LEASE = 2.0
SERVED = [
    "echo=tests.support.agents:echo",
    "slow=tests.support.agents:slow",
    "hold=tests.support.agents:hold",
    *(f"{name}=tests.support.lifecycle_agents:{name}" for name in AGENTS),
]


async def finished(client: Client, session: str, turn: str, timeout: float = PATIENCE) -> dict[str, Any]:
    """The turn once it is terminal."""

    async def ended() -> dict[str, Any] | None:
        seen = await client.turn(session, turn)
        return seen if seen["finished_at"] else None

    return await eventually(ended, "the turn ends", timeout=timeout) or {}


async def paused(client: Client, session: str, turn: str, asks: int | None = None) -> dict[str, Any]:
    """The turn once it waits for people (with so many open questions)."""

    async def waits() -> dict[str, Any] | None:
        seen = await client.turn(session, turn)
        open_ones = [need for need in seen["requirements"] if "answer" not in need]
        return seen if seen["status"] == "paused" and (asks is None or len(open_ones) == asks) else None

    return await eventually(waits, "the turn pauses") or {}


async def owner_of(cluster: Cluster, turn: str) -> RoleProcess:
    """The worker that holds the turn now."""

    async def found() -> RoleProcess | None:
        rows = await cluster.fetch("SELECT worker_id::text AS worker FROM claims WHERE turn_id = $1::uuid", turn)
        named = (worker for worker in cluster.workers if rows and rows[0]["worker"] in worker.text())
        return next(named, None)

    owner = await eventually(found, "somebody holds the turn")
    assert owner is not None
    return owner


def of_type(events: list[dict[str, Any]], type_: str, turn: str | None = None) -> list[dict[str, Any]]:
    """Payloads of that type (of that turn)."""
    return [e["data"] for e in events if e["type"] == type_ and turn in (None, e.get("turn_id"))]


async def approve(client: Client, session: str, turn: str, *calls: str, approved: bool = True) -> int:
    """Answer; the status of the reply."""
    body = {"answers": [{"tool_call_id": call, "approved": approved} for call in calls]}
    return (await client.request("POST", f"/v1/sessions/{session}/turns/{turn}/continue", body)).status_code
