"""What clients ask of a session: turns, messages, status. Each answer comes from one snapshot and says its sequence."""

from collections.abc import Sequence as Many

import msgspec

from domain import message
from domain.errors import SessionNotFound, TurnNotFound
from domain.ids import Sequence, SessionId, is_uuid
from domain.session import chat_status
from domain.turn import Turn
from domain.turn_row import from_row
from infra.postgres.pool import Pool, fetch
from infra.postgres.sql import statements

_READS = statements("reads")
_SQL = statements("read_models")

_LAST = 2**62


class TurnsPage(msgspec.Struct, frozen=True):
    """Newest first. `next_cursor`: enqueue sequence to go on below, None at the end."""

    items: list[Turn]
    next_cursor: int | None
    as_of_sequence: Sequence


class MessagesPage(msgspec.Struct, frozen=True):
    """In reading order. `next_cursor`: the place to go on from in the asked direction, None at the end."""

    items: list[message.MessageView]
    next_cursor: str | None
    as_of_sequence: Sequence


class SessionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Head and queue of a session as viewers and gateways need them."""

    last_sequence: Sequence
    queue_state: str
    active_turn_id: str | None
    active_status: str | None
    queued: int
    chat_status: str
    closed: bool


class PostgresReadModels:
    """Any number of callers at once. Every method raises StoreUnavailable, and SessionNotFound for what is unknown."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def turn(self, session_id: SessionId, turn_id: str) -> tuple[Turn, Sequence]:
        """By its id, or by the name its submitter gave it, which wins. Raises TurnNotFound."""
        known = turn_id if is_uuid(turn_id) else None
        rows = await fetch(self._pool, _SQL["turn"], session_id, known, turn_id)
        if not rows:
            raise SessionNotFound(session_id=session_id)
        if rows[0]["turn_id"] is None:
            raise TurnNotFound(turn_id=turn_id)
        return from_row(rows[0]), rows[0]["as_of_sequence"]

    async def turns(
        self, session_id: SessionId, *, status: str | None = None, limit: int = 50, cursor: int | None = None
    ) -> TurnsPage:
        """Turns with that status (all: None), newest first, below the cursor."""
        rows = await fetch(
            self._pool, _SQL["turns"], session_id, status, _LAST if cursor is None else cursor, limit + 1
        )
        if not rows:
            raise SessionNotFound(session_id=session_id)
        found = [from_row(row) for row in rows if row["turn_id"] is not None]
        more = len(found) > limit
        items = found[:limit]
        return TurnsPage(items, items[-1].enqueue_sequence if more else None, rows[0]["as_of_sequence"])

    async def messages(
        self, session_id: SessionId, *, limit: int = 50, before: str | None = None, after: str | None = None
    ) -> MessagesPage:
        """The newest ones, those before a place, or those after one; always in reading order. A place is what
        `next_cursor` gave: `TURN.ORDINAL`. Raises ValueError on anything else."""
        if after is not None:
            rows = await fetch(self._pool, _SQL["messages_after"], session_id, *_place(after), limit + 1)
        else:
            place = (_LAST, 0) if before is None else _place(before)
            rows = await fetch(self._pool, _SQL["messages_before"], session_id, *place, limit + 1)
        if not rows:
            raise SessionNotFound(session_id=session_id)
        found = [row for row in rows if row["message_id"] is not None]
        more = len(found) > limit
        if more:
            found = found[:limit] if after is not None else found[1:]
        edge = (found[-1] if after is not None else found[0]) if more else None
        items = [
            message.view(
                message_id=row["message_id"],
                turn_id=row["turn_id"],
                role=row["role"],
                parts=row["parts"],
                status=row["status"],
                first_sequence=row["first_sequence"],
                last_sequence=row["last_sequence"],
                ordinal=row["ordinal"],
                created_at=row["created_at"],
            )
            for row in found
        ]
        cursor = None if edge is None else f"{edge['enqueue_sequence']}.{edge['ordinal']}"
        return MessagesPage(items, cursor, rows[0]["as_of_sequence"])

    async def status(self, session_id: SessionId) -> SessionStatus:
        """Of one session."""
        found = await self.statuses([session_id])
        if session_id not in found:
            raise SessionNotFound(session_id=session_id)
        return found[session_id]

    async def statuses(self, session_ids: Many[SessionId]) -> dict[SessionId, SessionStatus]:
        """Of those that exist, in one statement."""
        rows = await fetch(self._pool, _READS["statuses"], list(session_ids))
        return {
            row["session_id"]: SessionStatus(
                last_sequence=row["last_sequence"],
                queue_state=row["queue_state"],
                active_turn_id=row["active_turn_id"],
                active_status=row["active_status"],
                queued=row["queued_count"],
                chat_status=chat_status(
                    row["queue_state"], row["queued_count"], row["active_status"], row["continued"]
                ),
                closed=row["closed"],
            )
            for row in rows
        }

    async def epoch(self) -> int:
        """Raised by the restore procedure; clients that see another one reload."""
        rows = await fetch(self._pool, _READS["epoch"])
        epoch: int = rows[0]["epoch"]
        return epoch


def _place(cursor: str) -> tuple[int, int]:
    turn, dot, ordinal = cursor.partition(".")
    if not (dot and turn.isascii() and turn.isdigit() and ordinal.isascii() and ordinal.isdigit()):
        raise ValueError("a place in messages is TURN.ORDINAL")
    place = (int(turn), int(ordinal))
    if max(place) >= _LAST:
        raise ValueError("a place in messages is TURN.ORDINAL")
    return place
