"""`POST …/sessions/{id}/fork`: a session of its own that begins with what has been said in another one."""

from typing import Annotated

import msgspec
from litestar import Response, post
from litestar.params import FromPath, QueryParameter

from domain.errors import NothingToCopy, SessionNotFound
from domain.ids import Sequence, SessionId
from infra.postgres.registrations import NewRegistration, Registration
from infra.postgres.session_copies import PostgresSessionCopies, SessionCopy
from services.gateway import registering
from services.gateway.dialects.agentos.answers import Refused, json_answer
from services.gateway.dialects.agentos.finding import Finder, session_metadata, session_name, user_tag
from services.gateway.dialects.agentos.forms import HttpRequest
from services.gateway.dialects.agentos.routes.common import Find, paths

_NOTHING = "Source session has no runs to fork."


@post(paths("/sessions/{session_id:str}/fork", "agents", "teams"), status_code=200)
async def fork_session(
    request: HttpRequest,
    finder: Find,
    component_id: FromPath[str],
    session_id: FromPath[str],
    user_id: Annotated[str | None, QueryParameter()] = None,
) -> Response[bytes]:
    """The runs that are over are copied under new ids; the source is not touched, and what waits, runs or is paused in
    it stays there alone. Answered when the copy is whole."""
    component = await finder.component(request, component_id)
    try:
        source = (await finder.session(request, session_id)).registration
    except SessionNotFound as error:
        raise Refused(400, _NOTHING) from error
    if source.agent_id != component.agent_id:
        raise Refused(404, "Session not found")
    if finder.deps.authenticator.off and user_tag(source) not in (None, user_id or user_tag(source)):
        raise Refused(400, _NOTHING)
    if not any(turn.terminal for turn in await finder.turns(source.session_id)):
        raise Refused(400, _NOTHING)
    if not finder.deps.authenticator.off:
        finder.deps.rates.take(source.owner)
    try:
        made = await _copied(finder, source)
    except NothingToCopy as error:
        raise Refused(400, _NOTHING) from error
    return json_answer({"session_id": session_name(made), "forked_from_session_id": session_id})


async def _copied(finder: Finder, source: Registration) -> Registration:
    """Noted first, so that whoever finds it half made goes on with it."""
    deps = finder.deps
    new = SessionId(deps.ids.uuid7())
    head = (await deps.agent.heads([source.session_id])).heads[source.session_id]
    await PostgresSessionCopies(deps.registrations.pool).note(
        new, SessionCopy(source.session_id, Sequence(head.last_sequence))
    )
    kept = {**session_metadata(source), "forked_from_session_id": session_name(source)}
    registration, _ = await deps.registrations.begin(
        NewRegistration(
            session_id=new,
            owner=source.owner,
            agent_id=source.agent_id,
            fingerprint=registering.copy_mark(new),
            title=source.title,
            context_version=source.context_version,
            metadata=msgspec.json.encode({"agentos": kept}),
        )
    )
    await registering.start(deps.agent, deps.registrations, registration)
    active = await deps.registrations.activate(new)
    if active is None:
        raise SessionNotFound()
    return active
