"""`/v1/sessions/{id}/messages`: the conversation as a read model."""

from typing import Annotated

from litestar import Request, Response, get
from litestar.datastructures import State
from litestar.params import FromQuery, QueryParameter

from services.gateway import shapes
from services.gateway.deps import Deps
from services.gateway.openapi import described
from services.gateway.routes.sessions import SessionRef

MIN_SEQUENCE_SECONDS = 5.0


@get(
    "/v1/sessions/{session_ref:str}/messages",
    operation_id="listMessages",
    operation_class=described({200: shapes.MessageList}, 400, 404, 422, 503, 504),
)
async def list_messages(
    request: Request[object, object, State],
    deps: Deps,
    session_ref: SessionRef,
    limit: Annotated[int, QueryParameter(ge=1, le=200)] = 50,
    before: FromQuery[str | None] = None,
    after: FromQuery[str | None] = None,
    min_sequence: Annotated[int | None, QueryParameter(ge=0, le=2**63 - 1)] = None,
) -> Response[bytes]:
    """Messages in order. `min_sequence` waits until the model has that event: 504 after 5 s."""
    registration = await deps.authenticator.session(request, session_ref)
    asked = {"limit": str(limit), "before": before, "after": after}
    query = {name: value for name, value in asked.items() if value is not None}
    wait = 0.0
    if min_sequence is not None:
        query["min_sequence"] = str(min_sequence)
        wait = MIN_SEQUENCE_SECONDS
    content = await deps.agent.read(f"/sessions/{registration.session_id}/messages", query, wait)
    return Response(content, media_type="application/json")
