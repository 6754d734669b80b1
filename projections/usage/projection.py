"""The `usage` read model: tokens of model requests by session, agent, user and day."""

from collections.abc import Sequence as Many

import msgspec

from domain.clock import rfc3339
from domain.commands import CopyTurns
from domain.events.item import UsageRecorded
from domain.events.session import SessionCreated
from domain.ids import Micros, SessionId
from domain.ports import FeedEvent, Transaction
from projections.base import definition, queries

_SQL = queries("projections.usage")
_encode = msgspec.json.Encoder().encode


class _Cause(msgspec.Struct):
    by: str = ""
    command: str = ""


class _Tokens(msgspec.Struct):
    session_id: str
    day: str
    model: str
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


_cause = msgspec.json.Decoder(_Cause).decode


class Usage:
    """Implements `domain.ports.FeedProjection`. A session belongs to whoever created it."""

    name = "usage"
    version = 1
    tables = ("usage_tokens", "usage_sessions")
    definition = definition("projections.usage")
    types = (SessionCreated.type, UsageRecorded.type)

    async def apply(self, events: Many[FeedEvent], tx: Transaction) -> None:
        """Two statements at most: sessions that are new, and sums of what these events used."""
        created: list[dict[str, str]] = []
        sums: dict[tuple[str, str, str], _Tokens] = {}
        for event in events:
            data = event.data
            if isinstance(data, SessionCreated):
                user = _cause(event.metadata).by
                created.append({"session_id": event.session_id, "agent_id": data.agent_id, "user_id": user})
            elif isinstance(data, UsageRecorded) and _cause(event.metadata).command != CopyTurns.__struct_config__.tag:
                # A copy of a session has used nothing.
                key = (event.session_id, rfc3339(Micros(event.created_at))[:10], data.model)
                row = sums.setdefault(key, _Tokens(*key))
                row.requests += 1
                row.input_tokens += data.input_tokens
                row.output_tokens += data.output_tokens
                row.cache_read_tokens += data.cache_read_tokens
                row.cache_write_tokens += data.cache_write_tokens
        if created:
            await tx.execute(_SQL["sessions"], _encode(created))
        if sums:
            await tx.execute(_SQL["add"], _encode(list(sums.values())))

    async def erase(self, session_id: SessionId, tx: Transaction) -> None:
        """Numbers and ids stay."""
