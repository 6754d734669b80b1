"""The AgentOS routes as one router, under the prefix that the settings name."""

from typing import Any

from litestar import Router
from litestar.connection import ASGIConnection
from litestar.di import Provide
from litestar.handlers.base import BaseRouteHandler
from litestar.types import ControllerRouterHandler

from infra.postgres.agentos_names import PostgresAgentOSNames
from services.gateway.deps import GatewayDeps
from services.gateway.dialects.agentos.answers import HANDLERS
from services.gateway.dialects.agentos.finding import Finder
from services.gateway.dialects.agentos.posted import UploadLimits
from services.gateway.dialects.agentos.routes import (
    checkpoints,
    continuing,
    create,
    discovery,
    evals,
    resume,
    runs,
    session_forks,
    session_runs,
    sessions,
)

_ROUTES = [
    continuing.continue_run,
    checkpoints.list_checkpoints,
    checkpoints.get_checkpoint,
    runs.get_run,
    runs.list_runs,
    runs.cancel_run,
    resume.resume_run,
    resume.watch_run,
    sessions.list_sessions,
    sessions.create_session,
    sessions.get_session,
    sessions.rename_session,
    sessions.change_session,
    sessions.delete_session,
    sessions.delete_sessions,
    session_forks.fork_session,
    session_runs.list_session_runs,
    session_runs.get_session_run,
    evals.list_evaluations,
    evals.get_evaluation,
    discovery.health,
    discovery.info,
    discovery.config,
    discovery.list_components,
    discovery.get_component,
]


def router(deps: GatewayDeps) -> list[Router]:
    """None of them where the settings say off."""
    prefix = deps.settings.agentos.prefix
    if prefix == "off":
        return []
    finder = Finder(deps, PostgresAgentOSNames(deps.registrations.pool))
    # The only bodies that may be large, and are read as they come.
    creating = Router(
        path="/",
        route_handlers=[create.create_run],
        request_max_body_size=UploadLimits.of(deps.settings.limits).body,
    )
    routes: list[ControllerRouterHandler] = [creating, *_ROUTES]

    async def guard(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
        # Before a body is read and a component is looked for: strangers learn nothing, and hand nothing in.
        if not handler.opt.get("open"):
            await deps.authenticator.known(connection)

    return [
        Router(
            path=prefix,
            guards=[guard],
            # At the root that path is the page's.
            route_handlers=routes if prefix == "/" else [*routes, discovery.home],
            dependencies={"finder": Provide(lambda: finder, sync_to_thread=False)},
            exception_handlers=HANDLERS,
            include_in_schema=False,
        )
    ]
