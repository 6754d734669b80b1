"""`/v1/agents`: what a session can be created for."""

from litestar import Request, Response, get
from litestar.datastructures import State

from services.gateway import shapes
from services.gateway.deps import Deps
from services.gateway.openapi import described


@get("/v1/agents", operation_id="listAgents", operation_class=described({200: shapes.Agent}, 503, many=True))
async def list_agents(request: Request[object, object, State], deps: Deps) -> Response[bytes]:
    """Agents that workers have announced."""
    deps.authenticator.credential(request)
    return Response(await deps.agent.read("/agents"), media_type="application/json")
