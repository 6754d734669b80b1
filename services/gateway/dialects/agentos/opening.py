"""The session that a run goes into: found by the caller's name for it, or begun."""

import hashlib
import uuid
from typing import Any

import msgspec

from domain.errors import SessionNotFound
from domain.ids import SessionId
from infra.postgres.registrations import NewRegistration
from services.gateway import registering
from services.gateway.auth import Access
from services.gateway.dialects.agentos.answers import Refused, field_fault
from services.gateway.dialects.agentos.component import Component
from services.gateway.dialects.agentos.finding import Finder, session_name, user_tag
from services.gateway.dialects.agentos.forms import HttpRequest
from services.gateway.names import external_id_fault

_NAMESPACE = uuid.UUID("0d8e5f0a-0a3f-4f5e-8a2b-5f7f0c6c9a21")


def name_for_key(user: str, key: str) -> str:
    """The name of the session that a keyed request without one begins: the same again for its repeat."""
    return str(uuid.uuid5(_NAMESPACE, f"{user}\x00{key}"))


async def open_session(
    finder: Finder,
    request: HttpRequest,
    component: Component,
    name: str,
    user_id: str | None,
    said: dict[str, Any] | None = None,
) -> Access:
    """The sender's session of that name, begun now where there is none. Concurrent callers get the same one. Raises
    Refused: 404 for a session of another user, 409 for one of another component, 410 for a deleted one, 422."""
    fault = external_id_fault(name)
    if fault is not None:
        raise field_fault("body", "session_id", "value_error", f"session_id {fault}", None)
    try:
        access = await finder.session(request, name)
    except SessionNotFound:
        await _begin(finder, request, component, name, user_id, said or {})
        access = await finder.session(request, name)
    found = access.registration
    if finder.deps.authenticator.off:
        begun_by = user_tag(found)
        if begun_by is not None and begun_by != user_id:
            raise Refused(404, "Session not found")
    if found.agent_id != component.agent_id:
        raise Refused(409, f"Session {session_name(found)} belongs to another component: a session has one")
    return access


async def _begin(
    finder: Finder,
    request: HttpRequest,
    component: Component,
    name: str,
    user_id: str | None,
    said: dict[str, Any],
) -> None:
    deps = finder.deps
    owner = deps.authenticator.owner(request)
    kept = {**said, **({"user_id": user_id} if user_id is not None and deps.authenticator.off else {})}
    new = NewRegistration(
        session_id=SessionId(deps.ids.uuid7()),
        owner=owner,
        agent_id=component.agent_id,
        fingerprint=hashlib.sha256(f"agentos\x00{component.agent_id}".encode()).digest(),
        external_id=name,
        title=said.get("session_name"),
        metadata=msgspec.json.encode({"agentos": kept}) if kept else None,
    )
    found, _ = await deps.registrations.begin(new)
    if found.state == "starting":
        await registering.start(deps.agent, deps.registrations, found)
        if await deps.registrations.activate(found.session_id) is not None:
            return
    if found.state != "active":
        raise Refused(410, f"Session {name} was deleted; its id is never used again")
