"""The agent service's ASGI app: internal HTTP over pipeline, store and read models."""

from litestar import Litestar, Router
from litestar.di import Provide

from services.agent.access import secret_guard
from services.agent.deps import AgentDeps
from services.agent.refusals import HANDLERS
from services.agent.routes import blobs, commands, copies, health, hooks, models, projections, replay

# An input that is too large must still arrive, so that its refusal can name the limit; gateways bound bodies before.
_MAX_BODY_BYTES = 16 * 1024 * 1024


def create_app(deps: AgentDeps) -> Litestar:
    """The app; whoever calls this keeps `deps` open as long as it is served."""
    internal = Router(
        path="/",
        route_handlers=[
            commands.execute,
            copies.copy_session,
            replay.events,
            replay.heads,
            replay.open_items,
            models.agents,
            models.turns,
            models.turn,
            models.checkpoints,
            models.messages,
            models.status,
            projections.projections,
            projections.search,
            hooks.hook_runs,
        ],
        guards=[secret_guard(deps.secret)],
    )
    attachments = Router(
        path="/",
        route_handlers=[blobs.known, blobs.keep],
        guards=[secret_guard(deps.secret)],
        request_max_body_size=deps.attachment_bytes,
    )
    return Litestar(
        route_handlers=[internal, attachments, health.health, health.ready, health.metrics],
        dependencies={"deps": Provide(lambda: deps, sync_to_thread=False)},
        exception_handlers=HANDLERS,
        openapi_config=None,
        request_max_body_size=_MAX_BODY_BYTES,
        logging_config=None,
    )
