"""The `hooks` read model: background hooks and evaluations, with what became of them."""

from collections.abc import Sequence as Many
from typing import Any

import msgspec

from domain.events.hook import HookCompleted, HookFailed, HookScheduled
from domain.ids import SessionId
from domain.ports import FeedEvent, Transaction
from projections.base import definition, queries

_SQL = queries("projections.hooks")
_encode = msgspec.json.Encoder().encode


class Hooks:
    """Implements `domain.ports.FeedProjection`. One row a job; its first end counts."""

    name = "hooks"
    version = 1
    tables = ("hook_runs",)
    definition = definition("projections.hooks")
    types = (HookScheduled.type, HookCompleted.type, HookFailed.type)

    async def apply(self, events: Many[FeedEvent], tx: Transaction) -> None:
        """Two statements at most: a job is scheduled before it ends, also within one page."""
        scheduled: list[dict[str, Any]] = []
        ended: dict[str, dict[str, Any]] = {}
        for event in events:
            row = {"session_id": event.session_id, "at": event.created_at}
            match event.data:
                case HookScheduled() as data:
                    row |= {"turn_id": event.turn_id, "sequence": event.sequence}
                    scheduled.append(row | {"job_id": data.job_id, "hook": data.hook, "kind": data.kind})
                case HookCompleted() as data:
                    row |= {"status": "completed", "result": data.result}
                    ended.setdefault(data.job_id, row | {"job_id": data.job_id})
                case HookFailed() as data:
                    row |= {"status": "failed", "error": data.error, "attempts": data.attempts}
                    ended.setdefault(data.job_id, row | {"job_id": data.job_id})
        if scheduled:
            await tx.execute(_SQL["scheduled"], _encode(scheduled))
        if ended:
            await tx.execute(_SQL["ended"], _encode(list(ended.values())))

    async def erase(self, session_id: SessionId, tx: Transaction) -> None:
        """What hooks found goes; that they ran stays."""
        await tx.execute(_SQL["erase"], session_id)
