"""What the agent service's handlers work with: made once by main (or a test), handed to `create_app`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from litestar.di import NamedDependency

from domain.clock import Clock
from domain.ports import CommandPipeline
from infra.postgres.blobs import PostgresBlobs
from infra.postgres.catalogue import PostgresCatalogue
from infra.postgres.feed_reads import PostgresFeedReads
from infra.postgres.history import PostgresHistory
from infra.postgres.hook_runs import PostgresHookRuns
from infra.postgres.read_models import PostgresReadModels
from infra.postgres.store import PostgresEventStore
from infra.telemetry.metrics import Metrics
from services.readiness import Check


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDeps:
    """Handlers ask for `deps: Deps`; everything in it is open as long as the app runs. `secret`: what gateways
    show. `page_bytes`: of one replay page; `attachment_bytes`: of one attachment at most. `command_seconds`: deadline
    of a command, below the gateway's timeout."""

    secret: str
    pipeline: CommandPipeline
    store: PostgresEventStore
    read_models: PostgresReadModels
    history: PostgresHistory
    catalogue: PostgresCatalogue
    feed_reads: PostgresFeedReads
    hook_runs: PostgresHookRuns
    blobs: PostgresBlobs
    clock: Clock
    metrics: Metrics
    page_bytes: int
    attachment_bytes: int
    command_seconds: float
    ready: Mapping[str, Check] = field(default_factory=dict)


Deps = NamedDependency[AgentDeps]
"""How a handler asks for it, by the name `deps`."""
