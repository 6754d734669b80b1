"""What the gateway's handlers work with: made once by main (or a test), handed to `create_app`."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from litestar.di import NamedDependency

from domain.clock import Clock, IdSource
from domain.ids import SessionId
from infra.postgres.registrations import PostgresRegistrations
from infra.settings import Settings
from infra.telemetry.metrics import Metrics
from services.gateway.agent_client import AgentClient
from services.gateway.auth import Authenticator
from services.gateway.passes import StreamPasses
from services.gateway.rates import Rates
from services.gateway.revocations import Revocations
from services.gateway.sse.hub import Hub

Check = Callable[[], Awaitable[None]]
"""Raises when the part it stands for does not work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayDeps:
    """Handlers ask for `deps: Deps`; everything in it is open as long as the app runs."""

    settings: Settings
    agent: AgentClient
    registrations: PostgresRegistrations
    authenticator: Authenticator
    hub: Hub
    rates: Rates
    repeats: Rates
    """How often a user who may begin nothing now may ask whether a key is known."""

    passes: StreamPasses
    revocations: Revocations
    clock: Clock
    ids: IdSource
    metrics: Metrics
    control: Callable[[SessionId, bytes], None] = lambda *_: None
    """Tells the gateways with streams of a session to look at it."""

    ready: Mapping[str, Check] = field(default_factory=dict)
    """Part -> what tells whether it works, for /readyz."""


Deps = NamedDependency[GatewayDeps]
"""How a handler asks for it, by the name `deps`."""
