"""`GET /v1/sessions/{id}/events`: the session's number line, as a stream that goes on or as JSON pages."""

import asyncio
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated

from litestar import Request, Response, get
from litestar.datastructures import State
from litestar.openapi.spec import OpenAPIMediaType, OpenAPIResponse, Operation, Schema
from litestar.params import HeaderParameter, QueryParameter

from domain.errors import BadCursor, Unavailable
from services.gateway import shapes
from services.gateway.auth import Access
from services.gateway.deps import Deps, GatewayDeps
from services.gateway.openapi import described
from services.gateway.passes import TicketUnclear, set_cookie
from services.gateway.routes.sessions import SessionRef
from services.gateway.sse.cursor import cursor_of
from services.gateway.sse.frames import closing
from services.gateway.sse.response import EventStream, NoStreamNow
from services.gateway.sse.viewer import Viewer

HttpRequest = Request[object, object, State]

_STREAM = "text/event-stream"
_JSON = "application/json"


def _operation() -> type[Operation]:
    described_json = described({200: shapes.EventPage, 204: None}, 400, 404, 422, 503)

    @dataclass
    class Described(described_json):  # type: ignore[misc, valid-type]
        def __post_init__(self) -> None:
            super().__post_init__()
            page = self.responses["200"]
            stream = OpenAPIMediaType(schema=Schema(type="string"))  # type: ignore[arg-type]
            self.responses["200"] = OpenAPIResponse(
                description="Events after the cursor: a page, or a stream that goes on",
                content={**page.content, _STREAM: stream},
            )
            self.responses["204"].description = "The session is closed and nothing is left: stop"

    return Described


@get(
    "/v1/sessions/{session_ref:str}/events",
    operation_id="readEvents",
    operation_class=_operation(),
)
async def read_events(
    request: HttpRequest,
    deps: Deps,
    session_ref: SessionRef,
    last_event_id: Annotated[
        str | None, HeaderParameter(name="Last-Event-ID", description="Wins over after_sequence")
    ] = None,
    after_sequence: Annotated[
        str | None, QueryParameter(description="The last sequence that the client has; 0 or absent: from the beginning")
    ] = None,
    ticket: Annotated[str | None, QueryParameter(description="In place of a header: opens one stream once")] = None,
    limit: Annotated[int | None, QueryParameter(ge=1, le=10_000, description="Events of a JSON page at most")] = None,
) -> Response[bytes] | Response[None]:
    """Committed events after the cursor, with `Accept: text/event-stream` (or a `Last-Event-ID`) as a stream that goes
    on. As JSON: one page, and the cursor to go on from (the same again when there is nothing yet)."""
    for sent in (request.headers.getall("last-event-id", []), request.query_params.getall("after_sequence", [])):
        if len(sent) > 1:
            # Which of them was meant, nobody knows.
            raise BadCursor()
    cursor = cursor_of(last_event_id, after_sequence)
    streams = _wants_stream(request, last_event_id)
    if streams and (deps.hub.draining or deps.hub.full):
        return NoStreamNow(deps.hub)
    if streams:
        return await _opened(request, deps, session_ref, ticket, cursor)
    session_id = (await deps.authenticator.stream(request, session_ref, ticket)).registration.session_id
    page = await deps.agent.page(session_id, cursor, "json", limit)
    body = b'{"items":[%b],"next_sequence":%d}' % (page.body, page.last)
    return Response(body, media_type=_JSON, headers={"Cache-Control": "no-store"})


def _wants_stream(request: HttpRequest, last_event_id: str | None) -> bool:
    accept = request.headers.get("accept", "")
    return _STREAM in accept or (last_event_id is not None and _JSON not in accept)


async def _opened(
    request: HttpRequest, deps: GatewayDeps, session_ref: str, ticket: str | None, cursor: int
) -> Response[None]:
    """The stream; where nobody can tell now who may read it, an answer that makes the client ask again."""
    try:
        async with asyncio.timeout(deps.hub.limits.attach_seconds):
            access = await deps.authenticator.stream(request, session_ref, ticket)
    except TicketUnclear as error:
        return NoStreamNow(deps.hub, _cookie(request, error.cookie, deps.settings.gateway.token_seconds))
    except (Unavailable, TimeoutError):
        return NoStreamNow(deps.hub)
    return _stream(request, deps, access, cursor)


def _cookie(request: HttpRequest, value: str, seconds: float) -> str:
    path = request.scope.get("raw_path", b"").decode("latin-1") or request.url.path
    secure = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
    return set_cookie(value, path, int(seconds), secure=secure)


def _stream(request: HttpRequest, deps: GatewayDeps, access: Access, cursor: int) -> EventStream:
    """It ends when the credential does, and when the right is revoked."""
    session_id, grant = access.registration.session_id, access.grant
    seconds = grant.seconds
    cookie = None
    if access.cookie is not None:
        left = deps.settings.gateway.token_seconds if seconds is None else seconds
        cookie = _cookie(request, access.cookie, left)

    def guard(viewer: Viewer) -> AbstractContextManager[None]:
        return deps.revocations.watching(session_id, grant, lambda: viewer.end(closing("revoked")))

    return EventStream(deps.hub, session_id, cursor, seconds, guard, cookie)
