"""`GET /v1/sessions/{id}/events`: the session's number line, as a stream that goes on or as JSON pages."""

from dataclasses import dataclass
from typing import Annotated

from litestar import Request, Response, get
from litestar.datastructures import State
from litestar.openapi.spec import OpenAPIMediaType, OpenAPIResponse, Operation, Schema
from litestar.params import HeaderParameter, QueryParameter

from services.gateway import shapes
from services.gateway.auth import Access
from services.gateway.deps import Deps, GatewayDeps
from services.gateway.openapi import described
from services.gateway.routes.sessions import SessionRef
from services.gateway.sse.cursor import cursor_of
from services.gateway.sse.response import EventStream

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
    limit: Annotated[int | None, QueryParameter(ge=1, le=10_000, description="Events of a JSON page at most")] = None,
) -> Response[bytes] | Response[None]:
    """Committed events after the cursor, with `Accept: text/event-stream` (or a `Last-Event-ID`) as a stream that goes
    on. As JSON: one page, and the cursor to go on from (the same again when there is nothing yet)."""
    access = await deps.authenticator.stream(request, session_ref)
    cursor = cursor_of(last_event_id, after_sequence)
    session_id = access.registration.session_id
    if _wants_stream(request, last_event_id):
        return EventStream(deps.hub, session_id, cursor, _seconds_left(deps, access))
    page = await deps.agent.page(session_id, cursor, "json", limit)
    body = b'{"items":[%b],"next_sequence":%d}' % (page.body, page.last)
    return Response(body, media_type=_JSON, headers={"Cache-Control": "no-store"})


def _wants_stream(request: HttpRequest, last_event_id: str | None) -> bool:
    accept = request.headers.get("accept", "")
    return _STREAM in accept or (last_event_id is not None and _JSON not in accept)


def _seconds_left(deps: GatewayDeps, access: Access) -> float | None:
    return None if access.expires_at is None else (access.expires_at - deps.clock.now()) / 1_000_000
