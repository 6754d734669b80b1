"""`/v1/agents`: what a session can be created for."""

from typing import Literal

import msgspec
from litestar import Request, Response, get
from litestar.datastructures import State

from services.gateway import shapes
from services.gateway.deps import Deps
from services.gateway.openapi import described


class _Agent(msgspec.Struct, frozen=True):
    """A row of the catalogue without its `details`: they are long, and for dialects that show them."""

    agent_id: str
    name: str
    component: Literal["agent", "team", "workflow"]


_catalogue = msgspec.json.Decoder(list[_Agent])


@get("/v1/agents", operation_id="listAgents", operation_class=described({200: shapes.Agent}, 503, many=True))
async def list_agents(request: Request[object, object, State], deps: Deps) -> Response[bytes]:
    """Agents that workers have announced, for users: a session token is for one session, which has its agent."""
    deps.authenticator.owner(request)
    agents = _catalogue.decode(await deps.agent.read("/agents"))
    return Response(msgspec.json.encode(agents), media_type="application/json")
