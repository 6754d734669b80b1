"""`POST …/sessions/{id}/fork`: answered, so that a client learns what to do in its place."""

from litestar import Response, post
from litestar.params import FromPath

from domain.errors import SessionNotFound
from services.gateway.dialects.agentos.answers import Refused
from services.gateway.dialects.agentos.forms import HttpRequest
from services.gateway.dialects.agentos.routes.common import Find, paths


@post(paths("/sessions/{session_id:str}/fork", "agents", "teams"), status_code=200)
async def fork_session(
    request: HttpRequest, finder: Find, component_id: FromPath[str], session_id: FromPath[str]
) -> Response[bytes]:
    """A session's log is its own; what branches off is a run of it."""
    await finder.component(request, component_id)
    try:
        await finder.session(request, session_id)
    except SessionNotFound as error:
        raise Refused(400, "Source session has no runs to fork.") from error
    raise Refused(501, "Sessions are not copied: continue a run of it with fork=true")
