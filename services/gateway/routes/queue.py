"""`/v1/sessions/{id}/status` and `/resume`: where the session's queue stands, and going on after a bad end."""

from litestar import Request, Response, get, post
from litestar.datastructures import State

from domain.commands import ResumeQueue
from domain.ids import CommandKey, SessionId
from services.gateway import shapes
from services.gateway.deps import Deps, GatewayDeps
from services.gateway.openapi import described
from services.gateway.routes.sessions import SessionRef
from services.gateway.routes.turns import trace_of

HttpRequest = Request[object, object, State]


async def _status(deps: GatewayDeps, session_id: SessionId) -> Response[bytes]:
    return Response(await deps.agent.read(f"/sessions/{session_id}/status"), media_type="application/json")


@get(
    "/v1/sessions/{session_ref:str}/status",
    operation_id="getStatus",
    operation_class=described({200: shapes.Status}, 404, 503),
)
async def get_status(request: HttpRequest, deps: Deps, session_ref: SessionRef) -> Response[bytes]:
    """Whose move it is, and what waits."""
    registration = await deps.authenticator.session(request, session_ref)
    return await _status(deps, registration.session_id)


@post(
    "/v1/sessions/{session_ref:str}/resume",
    status_code=200,
    operation_id="resumeQueue",
    operation_class=described({200: shapes.Status}, 404, 409, 503),
)
async def resume_queue(request: HttpRequest, deps: Deps, session_ref: SessionRef) -> Response[bytes]:
    """Go on with what waits, after a turn failed or was interrupted."""
    registration = await deps.authenticator.session(request, session_ref)
    await deps.agent.execute(
        ResumeQueue(
            session_id=registration.session_id,
            key=CommandKey(deps.ids.uuid7()),
            by=registration.user_id,
            trace=trace_of(request),
        )
    )
    return await _status(deps, registration.session_id)
