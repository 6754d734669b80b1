"""Jobs of background hooks beside the log: written and removed in the transaction that appends their events."""

from collections.abc import Iterable
from typing import Any

import msgspec

from domain.events.hook import HookCompleted, HookFailed, HookScheduled
from domain.events.session import SessionErased
from infra.pipeline.batch import SessionBatch
from infra.postgres.sql import statements

_SQL = statements("hooks")
_encode = msgspec.json.Encoder().encode


class _Row(msgspec.Struct, frozen=True):
    job_id: str
    session_id: str
    turn_id: str | None
    agent_id: str
    hook: str


async def keep_jobs(connection: Any, batches: Iterable[SessionBatch], again_in: float) -> None:
    """After the events were written. Whoever scheduled a job tells the work queue right after the commit; where that
    was lost, somebody does so when `again_in` seconds have passed."""
    scheduled: list[_Row] = []
    ended: list[str] = []
    for batch in batches:
        for event in batch.applied:
            match event.data:
                case HookScheduled(hook=hook, job_id=job_id) if batch.state.head is not None:
                    scheduled.append(_Row(job_id, batch.session_id, event.turn_id, batch.state.head.agent_id, hook))
                case HookCompleted(job_id=job_id) | HookFailed(job_id=job_id):
                    ended.append(job_id)
                case SessionErased():
                    await connection.execute(_SQL["forget"], batch.session_id)
    over = set(ended)
    scheduled = [row for row in scheduled if row.job_id not in over]
    if scheduled:
        await connection.execute(_SQL["schedule"], _encode(scheduled), again_in)
    if ended:
        await connection.execute(_SQL["ended"], ended)
