"""The connections of a pipeline."""

import msgspec

from infra.pipeline.settings import PipelineSettings
from infra.postgres.pool import POINT_LOOKUPS, Pool, Timeouts, create_pool

_STATEMENT_MILLISECONDS = 5_000
"""Statements of a group take milliseconds: transactions stay below a second."""


class PipelinePools(msgspec.Struct, frozen=True):
    """`groups`: one connection a lane and a few for groups that try again. `waiting`: those that block on locks."""

    groups: Pool
    waiting: Pool

    async def close(self) -> None:
        """Let running statements end, then close all connections."""
        await self.groups.close()
        await self.waiting.close()


async def open_pipeline_pools(
    dsn: str, settings: PipelineSettings, *, application: str = "turnlog pipeline", timeouts: Timeouts | None = None
) -> PipelinePools:
    """Pools of the sizes that `settings` asks for; connections are opened as they are needed."""
    bounds = timeouts or Timeouts()
    # A lane waits for its statement: a server that vanished without a word would stop its sessions for so long.
    # And whoever freezes in the middle of a group holds its locks for no longer than an idle transaction may.
    bounds = msgspec.structs.replace(
        bounds,
        statement=min(bounds.statement, _STATEMENT_MILLISECONDS),
        transaction=min(bounds.transaction or bounds.idle_in_transaction, bounds.idle_in_transaction),
    )
    waiting = msgspec.structs.replace(bounds, lock=max(1, int(settings.lock_timeout * 1000)))
    return PipelinePools(
        groups=await create_pool(
            dsn, size=settings.lanes + 2, application=application, timeouts=bounds, planner=POINT_LOOKUPS
        ),
        waiting=await create_pool(
            dsn, size=settings.waiters, application=f"{application} waiting", timeouts=waiting, planner=POINT_LOOKUPS
        ),
    )
