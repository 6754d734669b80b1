"""Committed events of one session at a time."""

from collections.abc import Sequence as Many

from domain.errors import SessionNotFound
from domain.ids import Sequence, SessionId
from domain.ports import Page
from domain.session import Head
from infra.postgres.pool import Pool, fetch
from infra.postgres.rows import event_of, head_of
from infra.postgres.sql import statements
from infra.postgres.wire import WireForm, WirePage, block, fitting

_SQL = statements("reads")

# Rows read at once. Most events are some hundred bytes, so a page of 512 KiB rarely needs a second read.
_ROWS = 1000


class PostgresEventStore:
    """Implements `domain.ports.EventStore`; replay in the wire's form besides. Any number of callers at once; what is
    read is committed, and the head is read first, so a page never claims to reach a head that it does not have."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def page(self, session_id: SessionId, after: Sequence, limit_bytes: int, limit_events: int) -> Page:
        """See `EventStore.page`."""
        head, _ = await self._head(session_id)
        if after >= head:
            return Page([], head)
        rows = await fetch(self._pool, _SQL["page"], session_id, after, limit_events)
        events = [event_of(row) for row in rows]
        kept = events[: fitting([event.payload for event in events], limit_bytes)]
        return Page(kept, max(head, kept[-1].sequence if kept else head))

    async def wire_page(
        self, session_id: SessionId, after: Sequence, limit_bytes: int, form: WireForm, limit_events: int | None = None
    ) -> WirePage:
        """As many events as fit into `limit_bytes` of ready bytes, at least one where there is one. Raises
        SessionNotFound, StoreUnavailable."""
        head, closed = await self._head(session_id)
        pieces: list[bytes] = []
        size, last = 0, after
        while last < head and size < limit_bytes and (limit_events is None or len(pieces) < limit_events):
            count = _ROWS if limit_events is None else min(_ROWS, limit_events - len(pieces))
            if pieces:
                # What is read and does not fit is read again for the next page.
                count = min(count, (limit_bytes - size) * len(pieces) // size + 1)
            rows = await fetch(self._pool, _SQL["wire_page"], session_id, last, count)
            fresh = [block(session_id, row, form) for row in rows]
            fits = fitting(fresh, limit_bytes - size)
            if pieces and fresh and size + len(fresh[0]) > limit_bytes:
                break
            pieces += fresh[:fits]
            size += sum(map(len, fresh[:fits]))
            last = rows[fits - 1]["sequence"] if fits else last
            if fits < len(rows) or not rows:
                break
        first = Sequence(after + 1) if pieces else after
        body = (b"" if form == "sse" else b",").join(pieces)
        return WirePage(first=first, last=last, head=max(head, last), closed=closed, body=body)

    async def heads(self, session_ids: Many[SessionId]) -> dict[SessionId, Head]:
        """See `EventStore.heads`."""
        rows = await fetch(self._pool, _SQL["heads"], list(session_ids))
        return {row["session_id"]: head_of(row) for row in rows}

    async def _head(self, session_id: SessionId) -> tuple[Sequence, bool]:
        rows = await fetch(self._pool, _SQL["head_of"], session_id)
        if not rows:
            raise SessionNotFound(session_id=session_id)
        return rows[0]["last_sequence"], rows[0]["closed"]
