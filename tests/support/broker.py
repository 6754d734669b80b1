"""Connections to a test's own nats-server, as the roles make them, and what was heard on them."""

import asyncio
from collections.abc import Callable
from typing import Any

from domain.ids import SessionId, TurnId
from infra.embedded import EmbeddedNats
from infra.nats.options import BrokerOptions
from tests.support.waiting import PATIENCE

SESSION = SessionId("0192f3c1-0000-7000-8000-000000000001")
OTHER_SESSION = SessionId("0192f3c1-0000-7000-8000-000000000002")
TURN = TurnId("0192f3c1-0000-7000-8000-0000000000aa")
ITEM = "0192f3c1-0000-7000-8000-0000000000b1"
OTHER_ITEM = "0192f3c1-0000-7000-8000-0000000000b2"


def broker_options(server: EmbeddedNats, role: str, *, namespace: str = "turnlog", **changes: Any) -> BrokerOptions:
    """How that role reaches the server; quick to try again."""
    user, password = server.credentials(role, namespace=namespace)
    given: dict[str, Any] = {
        "namespace": namespace,
        "role": role,
        "servers": (server.url,),
        "user": user,
        "password": password,
        "pause_max": 0.1,
    }
    return BrokerOptions(**(given | changes))


class Heard:
    """A session listener that keeps what it was told, in order, as (kind, bytes)."""

    def __init__(self) -> None:
        self.all: list[tuple[str, bytes]] = []

    def on_event(self, envelope: bytes) -> None:
        self.all.append(("event", envelope))

    def on_live(self, frame: bytes) -> None:
        self.all.append(("live", frame))

    def on_control(self, message: bytes) -> None:
        self.all.append(("control", message))

    def on_gap(self) -> None:
        self.all.append(("gap", b""))

    def of(self, kind: str) -> list[bytes]:
        return [data for heard, data in self.all if heard == kind]


async def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Waits for a condition that nothing announces. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)
