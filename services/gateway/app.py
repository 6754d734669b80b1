"""The gateway's ASGI app: public HTTP and streams over what `GatewayDeps` holds."""

from importlib.metadata import version

from litestar import Litestar
from litestar.config.cors import CORSConfig
from litestar.di import Provide

from services.gateway import openapi
from services.gateway.deps import GatewayDeps
from services.gateway.dialects.agentos.answers import with_agentos
from services.gateway.dialects.agentos.app import router as agentos_router
from services.gateway.loopback import guard
from services.gateway.problems import HANDLERS
from services.gateway.routes import (
    agents,
    answers,
    branches,
    events,
    health,
    hooks,
    messages,
    page,
    projections,
    queue,
    sessions,
    tickets,
    turns,
)

# JSON may write a character in up to four times its bytes (\u escapes); the exact bound is the domain's.
_BODY_FACTOR = 4
_BODY_MARGIN = 64 * 1024

ROUTES = [
    agents.list_agents,
    sessions.create_session,
    sessions.list_sessions,
    sessions.get_session,
    sessions.change_session,
    sessions.delete_session,
    turns.submit_turn,
    turns.list_turns,
    turns.get_turn,
    turns.cancel_turn,
    turns.interrupt_turn,
    answers.continue_turn,
    branches.list_checkpoints,
    branches.fork_turn,
    branches.regenerate_turn,
    queue.get_status,
    queue.resume_queue,
    messages.list_messages,
    hooks.list_hooks,
    projections.list_projections,
    projections.search_texts,
    events.read_events,
    tickets.create_ticket,
    health.health,
    health.ready,
    health.metrics,
    page.index,
]


def _cors(origins: list[str]) -> CORSConfig:
    """Exactly these origins. Credentials, because the stream's cookie is one; it opens nothing but that stream, and
    only for reading."""
    if "*" in origins:
        raise ValueError("TURNLOG_GATEWAY_ORIGINS names origins one by one")
    return CORSConfig(
        allow_origins=origins,
        allow_credentials=True,
        allow_methods=["GET", "POST", "PATCH", "DELETE"],
        allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"],
        expose_headers=["Idempotency-Replayed", "Retry-After"],
    )


def create_app(deps: GatewayDeps) -> Litestar:
    """The app; whoever calls this keeps `deps` open as long as it is served, and serves it with the protocol that
    streams need (services/gateway/sse/peer.py)."""
    settings = deps.settings
    origins = list(settings.gateway.origins)
    return Litestar(
        route_handlers=[*ROUTES, page.assets(), *agentos_router(deps)],
        dependencies={"deps": Provide(lambda: deps, sync_to_thread=False)},
        exception_handlers=with_agentos(HANDLERS, settings.agentos.prefix),
        middleware=[guard(frozenset(origins))] if deps.authenticator.off else [],
        cors_config=_cors(origins) if origins else None,
        openapi_config=openapi.config(version("turnlog")),
        request_max_body_size=int(settings.limits.input_bytes) * _BODY_FACTOR + _BODY_MARGIN,
        logging_config=None,
    )
