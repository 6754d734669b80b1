"""Settles what a crash between the two databases left: registrations that are `starting` for too long, and deleted ones
whose session was not closed. Every gateway sweeps; what they do is repeatable, so they need not agree."""

import asyncio
import random

import structlog

from domain.clock import IdSource
from domain.errors import AgentUnavailable, StoreUnavailable, TurnlogError
from domain.ids import CommandKey
from infra.postgres.registrations import PostgresRegistrations, Registration, RegistrationsUnavailable
from services.gateway import registering
from services.gateway.agent_client import AgentClient

log = structlog.get_logger("turnlog.gateway")

_BATCH = 100
_NOT_NOW = (AgentUnavailable, StoreUnavailable, RegistrationsUnavailable)


class Sweeper:
    """`run` it in a task. `starting_seconds`: a registration younger than that may still be in somebody's hands."""

    def __init__(
        self, agent: AgentClient, registrations: PostgresRegistrations, ids: IdSource, starting_seconds: float
    ) -> None:
        self._agent = agent
        self._registrations = registrations
        self._ids = ids
        self._starting_seconds = starting_seconds

    async def run(self) -> None:
        """Sweep until cancelled, a few times within `starting_seconds`, at times that differ between gateways."""
        while True:
            await asyncio.sleep(self._starting_seconds / 4 * random.uniform(0.75, 1.25))
            try:
                await self.sweep()
            except TurnlogError as error:
                log.warning("sweep_failed", code=error.code)

    async def sweep(self) -> int:
        """One round; how many were looked at. One that cannot be settled does not keep the others waiting. Raises
        Unavailable where nobody could be settled now."""
        unsettled = await self._registrations.unsettled(self._starting_seconds, _BATCH)
        for registration in unsettled:
            try:
                await self._settle(registration)
            except _NOT_NOW:
                raise
            except TurnlogError as error:
                log.info("registration_not_settled", session_id=registration.session_id, code=error.code)
        if unsettled:
            log.info("registrations_settled", count=len(unsettled))
        return len(unsettled)

    async def _settle(self, registration: Registration) -> None:
        if registration.state == "deleted":
            key = CommandKey(self._ids.uuid7())
            await registering.close(self._agent, self._registrations, registration, key)
        else:
            await registering.start(self._agent, self._registrations, registration)
            await self._registrations.activate(registration.session_id)
