"""Committed events of one session at a time."""

from collections.abc import Sequence as Many

import msgspec

from domain.errors import SessionNotFound
from domain.ids import Sequence, SessionId
from domain.ports import Page
from domain.session import Head
from infra.postgres.pool import Pool, fetch
from infra.postgres.rows import event_of, head_of
from infra.postgres.sql import statements
from infra.postgres.wire import LEAST, WireForm, WirePage, block, fitting, most, whole_blocks

_SQL = statements("reads")


class RunningTurn(msgspec.Struct, frozen=True):
    """A running turn, and which of the items that were asked for are in the log: `completed` ones, and calls that are
    `answered` by a final result."""

    turn_id: str
    attempt: int
    completed: list[str]
    answered: list[str]


class PostgresEventStore:
    """Implements `domain.ports.EventStore`; replay in the wire's form besides. Any number of callers at once; what is
    read is committed, and the head is read first, so a page never claims to reach a head that it does not have."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def page(self, session_id: SessionId, after: Sequence, limit_bytes: int, limit_events: int) -> Page:
        """See `EventStore.page`."""
        head = await self._head(session_id)
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
        if form == "sse":
            page = await self._stream_page(session_id, after, limit_bytes, limit_events)
            if page is not None:
                return page
        count = max(1, limit_bytes // LEAST)
        if limit_events is not None:
            count = min(count, limit_events)
        rows = await fetch(self._pool, _SQL["wire_page"], session_id, after, count, limit_bytes, LEAST)
        if not rows:
            raise SessionNotFound(session_id=session_id)
        *_, head, closed = rows[0]
        if rows[0]["sequence"] is None:
            return WirePage(first=after, last=after, head=head, closed=closed, body=b"")
        pieces = [block(session_id, row, form) for row in rows]
        fits = fitting(pieces, limit_bytes)
        body = (b"" if form == "sse" else b",").join(pieces[:fits])
        return WirePage(first=Sequence(after + 1), last=Sequence(after + fits), head=head, closed=closed, body=body)

    async def _stream_page(
        self, session_id: SessionId, after: Sequence, limit_bytes: int, limit_events: int | None
    ) -> WirePage | None:
        """As the server has put it together; None where a payload has a line break, which only we can mend."""
        around = most(after + limit_bytes)
        count = max(1, limit_bytes // around)
        if limit_events is not None:
            count = min(count, limit_events)
        rows = await fetch(self._pool, _SQL["stream_page"], session_id, after, count, limit_bytes, around)
        if not rows:
            raise SessionNotFound(session_id=session_id)
        head, closed, events, body = rows[0]
        if not events:
            return WirePage(first=after, last=after, head=head, closed=closed, body=b"")
        if not whole_blocks(body, events):
            return None
        return WirePage(first=Sequence(after + 1), last=Sequence(after + events), head=head, closed=closed, body=body)

    async def open_items(self, session_id: SessionId, item_ids: Many[str]) -> RunningTurn | None:
        """What is known of those items by now; None where no turn runs. Raises StoreUnavailable."""
        rows = await fetch(self._pool, _SQL["open_items"], session_id, list(item_ids))
        return RunningTurn(**rows[0]) if rows else None

    async def heads(self, session_ids: Many[SessionId]) -> dict[SessionId, Head]:
        """See `EventStore.heads`."""
        rows = await fetch(self._pool, _SQL["heads"], list(session_ids))
        return {row["session_id"]: head_of(row) for row in rows}

    async def _head(self, session_id: SessionId) -> Sequence:
        rows = await fetch(self._pool, _SQL["head_of"], session_id)
        if not rows:
            raise SessionNotFound(session_id=session_id)
        head: Sequence = rows[0]["last_sequence"]
        return head
