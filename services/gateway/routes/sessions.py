"""`/v1/sessions`: create, list, look at, change and delete one's sessions."""

from typing import Annotated

import msgspec
from litestar import Request, Response, delete, get, patch, post
from litestar.datastructures import State
from litestar.params import FromQuery, PathParameter, QueryParameter

from domain.clock import rfc3339
from domain.errors import SessionNotFound
from domain.ids import SessionId, is_uuid
from infra.postgres.registrations import Registration
from services.gateway import bodies, registering, shapes
from services.gateway.cursors import decoded, encoded
from services.gateway.deps import Deps
from services.gateway.openapi import described
from services.gateway.refusals import BadListCursor

HttpRequest = Request[object, object, State]

SessionRef = Annotated[str, PathParameter(description="The session's id, or one's own external_id of it")]


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """A session as its owner sees it."""

    session_id: str
    external_id: str | None
    agent_id: str
    title: str | None
    starred: bool
    context_version: str | None
    metadata: msgspec.Raw | None
    created_at: str
    changed_at: str


def view(registration: Registration) -> SessionView:
    """What a client may see of a registration."""
    return SessionView(
        session_id=registration.session_id,
        external_id=registration.external_id,
        agent_id=registration.agent_id,
        title=registration.title,
        starred=registration.starred,
        context_version=registration.context_version,
        metadata=None if registration.metadata is None else msgspec.Raw(registration.metadata),
        created_at=rfc3339(registration.created_at),
        changed_at=rfc3339(registration.changed_at),
    )


def _json(value: object, status: int = 200) -> Response[bytes]:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


def _cursor(after: Registration) -> str:
    return encoded(after.session_id.encode())


def _before(cursor: str | None) -> SessionId | None:
    if cursor is None:
        return None
    try:
        text = decoded(cursor).decode("ascii")
    except UnicodeDecodeError as error:
        raise BadListCursor() from error
    if not is_uuid(text):
        raise BadListCursor()
    return SessionId(text)


@post(
    "/v1/sessions",
    operation_id="createSession",
    operation_class=described(
        {201: shapes.CreatedSession, 200: shapes.CreatedSession},
        404, 409, 410, 413, 422, 503,
        takes=bodies.CreateSession,
    ),
)  # fmt: skip
async def create_session(request: HttpRequest, deps: Deps) -> Response[bytes]:
    """Create a session, or get it again: the same external_id and body give the same session with a fresh token."""
    owner = deps.authenticator.owner(request)
    body = await bodies.read(request, bodies.CreateSession)
    created, fresh = await registering.create(deps, owner, body)
    return _json(created, 201 if fresh else 200)


@get("/v1/sessions", operation_id="listSessions", operation_class=described({200: shapes.SessionList}, 400, 422, 503))
async def list_sessions(
    request: HttpRequest,
    deps: Deps,
    limit: Annotated[int, QueryParameter(ge=1, le=200)] = 50,
    cursor: FromQuery[str | None] = None,
) -> Response[bytes]:
    """One's own sessions, newest first."""
    owner = deps.authenticator.owner(request)
    found = await deps.registrations.page(owner, limit + 1, _before(cursor))
    more = len(found) > limit
    return _json(
        {"items": [view(one) for one in found[:limit]], "next_cursor": _cursor(found[limit - 1]) if more else None}
    )


@get(
    "/v1/sessions/{session_ref:str}",
    operation_id="getSession",
    operation_class=described({200: shapes.Session}, 404, 503),
)
async def get_session(request: HttpRequest, deps: Deps, session_ref: SessionRef) -> Response[bytes]:
    """One session."""
    return _json(view(await deps.authenticator.session(request, session_ref)))


@patch(
    "/v1/sessions/{session_ref:str}",
    operation_id="changeSession",
    operation_class=described({200: shapes.Session}, 404, 413, 422, 503, takes=bodies.ChangeSession),
)
async def change_session(request: HttpRequest, deps: Deps, session_ref: SessionRef) -> Response[bytes]:
    """Change what was sent. A context_version counts for turns submitted from now on."""
    registration = await deps.authenticator.session(request, session_ref)
    body = await bodies.read(request, bodies.ChangeSession)
    changed = await deps.registrations.change(registration.session_id, body.model_dump(exclude_unset=True))
    if changed is None:
        raise SessionNotFound()
    return _json(view(changed))


@delete(
    "/v1/sessions/{session_ref:str}",
    operation_id="deleteSession",
    operation_class=described({204: None}, 404, 422, 503),
)
async def delete_session(
    request: HttpRequest, deps: Deps, session_ref: SessionRef, erase: FromQuery[bool] = False
) -> None:
    """Delete: what runs is interrupted, what waits is cancelled, and only the events stream gives what is left. `erase`
    also removes what people and agents wrote, as soon as nothing runs any more."""
    await registering.delete(deps, await deps.authenticator.session(request, session_ref), erase=erase)
