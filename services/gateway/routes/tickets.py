"""`POST /v1/sessions/{id}/stream-ticket`: what a browser opens the events stream with."""

import msgspec
from litestar import Request, Response, post
from litestar.datastructures import State

from services.gateway import shapes
from services.gateway.deps import Deps
from services.gateway.openapi import described
from services.gateway.routes.sessions import SessionRef

HttpRequest = Request[object, object, State]


@post(
    "/v1/sessions/{session_ref:str}/stream-ticket",
    operation_id="createStreamTicket",
    operation_class=described({201: shapes.StreamTicket}, 404, 503),
)
async def create_ticket(request: HttpRequest, deps: Deps, session_ref: SessionRef) -> Response[bytes]:
    """A ticket for `?ticket=` of the events stream: it opens one stream once; reconnects go by the cookie that the
    answer sets for that path."""
    access = await deps.authenticator.access(request, session_ref)
    ticket = await deps.passes.ticket(access.registration.session_id, access.grant)
    body = msgspec.json.encode({"ticket": ticket, "expires_in": int(deps.passes.ticket_seconds)})
    return Response(body, status_code=201, media_type="application/json", headers={"Cache-Control": "no-store"})
