"""From what a request names to what there is: the component, the session, the run. What is somebody else's, another
component's or nowhere is never told apart."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from urllib.parse import quote

import msgspec

from domain.errors import SessionNotFound, TurnNotFound
from domain.ids import SessionId, TurnId
from infra.postgres.agentos_names import PostgresAgentOSNames
from infra.postgres.registrations import Registration
from services.gateway.auth import Access
from services.gateway.deps import GatewayDeps
from services.gateway.dialects.agentos.answers import Refused
from services.gateway.dialects.agentos.component import KINDS, NOT_FOUND, Component, Kind
from services.gateway.dialects.agentos.forms import HttpRequest
from services.gateway.dialects.agentos.reader import RunReader
from services.gateway.dialects.agentos.run import Run
from services.gateway.dialects.agentos.watch import Watch
from services.gateway.names import external_id_fault

_decode_components = msgspec.json.Decoder(list[Component]).decode


class TurnFacts(msgspec.Struct, frozen=True):
    """As much of a turn as decides what may be done with it."""

    turn_id: str
    status: str
    first_sequence: int
    last_sequence: int
    enqueue_sequence: int = 0
    external_id: str | None = None
    superseded_by: str | None = None

    @property
    def run_id(self) -> str:
        return self.external_id or self.turn_id

    @property
    def terminal(self) -> bool:
        return self.status in ("completed", "failed", "interrupted", "cancelled")


class _Turns(msgspec.Struct, frozen=True):
    items: list[TurnFacts]
    next_cursor: str | None = None


class Found(msgspec.Struct, frozen=True):
    """A run and how it was reached."""

    component: Component
    access: Access
    turn: TurnFacts

    @property
    def registration(self) -> Registration:
        return self.access.registration


class Finder:
    """Looks things up for one gateway."""

    def __init__(self, deps: GatewayDeps, names: PostgresAgentOSNames) -> None:
        self.deps = deps
        self.names = names

    # Components ----------------------------------------------------------------------------------------------------

    async def components(self) -> list[Component]:
        """All that workers have announced."""
        return _decode_components(await self.deps.agent.read("/agents"))

    async def component(self, request: HttpRequest, component_id: str) -> Component:
        """The one that the request's path names. Raises Refused."""
        return await self.component_of_kind(kind_of(request), component_id)

    async def component_of_kind(self, kind: Kind, component_id: str) -> Component:
        """Raises Refused."""
        for one in await self.components():
            if one.agent_id == component_id and one.kind == kind:
                return one
        raise Refused(404, NOT_FOUND[kind])

    # Sessions ------------------------------------------------------------------------------------------------------

    async def session(self, request: HttpRequest, name: str) -> Access:
        """The sender's session of that name. Raises SessionNotFound."""
        if external_id_fault(name) is not None:
            raise SessionNotFound()
        return await self.deps.authenticator.access(request, name)

    # Runs ----------------------------------------------------------------------------------------------------------

    async def run(self, request: HttpRequest, component: Component, run_id: str, session: str | None) -> Found:
        """The run of that component, in the session where one is named, else wherever the sender has a run of that
        name. Raises SessionNotFound, TurnNotFound."""
        if session is None:
            owner = self.deps.authenticator.owner(request)
            where = None if external_id_fault(run_id) is not None else await self.names.find(owner, run_id)
            if where is None:
                raise TurnNotFound()
            session = where
        access = await self.session(request, session)
        if access.registration.agent_id != component.agent_id:
            raise TurnNotFound()
        return Found(component, access, await self.turn(access.registration.session_id, run_id))

    async def turn(self, session_id: SessionId, run_id: str) -> TurnFacts:
        """Raises TurnNotFound."""
        if external_id_fault(run_id) is not None:
            raise TurnNotFound()
        content = await self.deps.agent.read(f"/sessions/{session_id}/turns/{quote(run_id, safe='')}")
        return msgspec.json.decode(content, type=TurnFacts)

    async def turns(self, session_id: SessionId) -> list[TurnFacts]:
        """All of the session, oldest first."""
        found: list[TurnFacts] = []
        cursor: str | None = None
        while True:
            query = {"limit": "500"} | ({} if cursor is None else {"cursor": cursor})
            page = msgspec.json.decode(await self.deps.agent.read(f"/sessions/{session_id}/turns", query), type=_Turns)
            found += page.items
            cursor = page.next_cursor
            if cursor is None:
                return found[::-1]

    def reader(self, component: Component, registration: Registration, turn: TurnFacts) -> RunReader:
        """What reads that run, from its beginning."""
        run = Run(
            component,
            TurnId(turn.turn_id),
            turn.run_id,
            session_name(registration),
            user_of(registration, off=self.deps.authenticator.off),
        )
        return RunReader(self.deps.agent, run, registration.session_id, turn.first_sequence, registration.user_id)

    async def read(self, found: Found) -> RunReader:
        """The run, with everything of it that is committed."""
        reader = self.reader(found.component, found.registration, found.turn)
        await reader.load(found.turn.last_sequence if found.turn.terminal else None)
        return reader

    def guard(self, access: Access) -> Any:
        """What ends a stream when the right to read does."""
        deps = self.deps

        @contextmanager
        def guarded(watch: Watch) -> Iterator[None]:
            timer = None
            if access.grant.seconds is not None:
                timer = asyncio.get_running_loop().call_later(max(access.grant.seconds, 0.0), watch.expire)
            held: AbstractContextManager[None] = deps.revocations.watching(
                access.registration.session_id, access.grant, watch.revoke
            )
            try:
                with held:
                    yield
            finally:
                if timer is not None:
                    timer.cancel()

        return guarded


def kind_of(request: HttpRequest) -> Kind:
    """By the path: …/agents/…, …/teams/…, …/workflows/…"""
    template = str(request.scope.get("path_template", ""))
    return next(kind for step, kind in KINDS.items() if f"/{step}/" in f"{template}/")


def session_name(registration: Registration) -> str:
    """What the caller calls it."""
    return registration.external_id or registration.session_id


def user_of(registration: Registration, *, off: bool) -> str | None:
    """Whose session it is in AgentOS's terms: the token's subject; without authentication what was said at first."""
    return registration.user_id if not off else user_tag(registration)


def user_tag(registration: Registration) -> str | None:
    """The user_id that the session was begun with, where nobody checks who asks."""
    said = _metadata(registration).get("user_id")
    return said if isinstance(said, str) else None


def _metadata(registration: Registration) -> dict[str, Any]:
    if registration.metadata is None:
        return {}
    metadata = msgspec.json.decode(registration.metadata)
    said = metadata.get("agentos") if isinstance(metadata, dict) else None
    return said if isinstance(said, dict) else {}


def session_metadata(registration: Registration) -> dict[str, Any]:
    """What AgentOS's clients said when they created the session."""
    return _metadata(registration)
