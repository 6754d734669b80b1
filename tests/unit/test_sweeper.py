"""A registration that cannot be settled does not keep the others waiting."""

from typing import Any

import pytest

from domain.commands import Command
from domain.errors import AgentUnavailable, InternalFault, LockTimeout, TurnlogError
from domain.ids import SessionId
from infra.memory.clock import CountingIds
from infra.postgres.registrations import Registration
from services.gateway.sweeper import Sweeper


def starting(session_id: str) -> Registration:
    told: dict[str, Any] = dict.fromkeys(Registration.__struct_fields__)
    return Registration(**{**told, "session_id": session_id, "user_id": "u", "agent_id": "a", "state": "starting"})


class Registrations:
    def __init__(self, *ids: str) -> None:
        self.active: list[str] = []
        self._starting = [starting(session_id) for session_id in ids]

    async def unsettled(self, seconds: float, limit: int) -> list[Registration]:
        return self._starting

    async def activate(self, session_id: SessionId) -> None:
        self.active.append(session_id)

    async def fail(self, session_id: SessionId) -> None: ...


class Agent:
    def __init__(self, **errors: TurnlogError) -> None:
        self._errors = errors

    async def execute(self, command: Command) -> None:
        error = self._errors.get(command.session_id)
        if error is not None:
            raise error


def sweeper(agent: Agent, registrations: Registrations) -> Sweeper:
    return Sweeper(agent, registrations, CountingIds(), 0.0)  # type: ignore[arg-type]


async def test_one_that_cannot_be_settled_does_not_keep_the_others_waiting() -> None:
    registrations = Registrations("locked", "broken", "fine")
    agent = Agent(locked=LockTimeout(seconds=2), broken=InternalFault())
    assert await sweeper(agent, registrations).sweep() == 3
    assert registrations.active == ["fine"]


async def test_a_service_that_is_away_ends_the_round() -> None:
    registrations = Registrations("one", "two")
    with pytest.raises(AgentUnavailable):
        await sweeper(Agent(one=AgentUnavailable()), registrations).sweep()
    assert registrations.active == []
