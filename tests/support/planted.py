"""Sessions put into a real database row by row, past the pipeline: by the superuser, triggers and keys off."""

from collections.abc import Iterable
from typing import Any

import msgspec

from domain.events.envelope import StoredEvent
from domain.ids import SessionId
from infra.postgres.pool import prepare
from projections.audit import HEAD_COLUMNS, MESSAGE_COLUMNS, TURN_COLUMNS, HeadRow, Stored
from tests.support.written import WrittenSession, resealed

EVENT_COLUMNS = StoredEvent.__struct_fields__


class Copy(msgspec.Struct):
    """The rows of one session."""

    session_id: SessionId
    events: list[StoredEvent]
    stored: Stored
    head: HeadRow


def copies(session: WrittenSession, count: int) -> Iterable[Copy]:
    """The same session under other ids: everything else, which need be unique in its session only, stays."""
    stored, head = session.stored(), session.head()
    place = HEAD_COLUMNS.index("head_hash")
    for number in range(count):
        session_id = SessionId(f"0198c0df-{number >> 16:04x}-7000-8000-{number & 0xFFFF:012x}")
        events = resealed([msgspec.structs.replace(event, session_id=session_id) for event in session.events])
        yield Copy(session_id, events, stored, (*head[:place], events[-1].hash, *head[place + 1 :]))


async def put(connection: Any, sessions: Iterable[Copy]) -> int:
    """Write them; the number of events. Ids must not be there yet."""
    await prepare(connection)
    count = 0
    for session in sessions:
        await _insert(connection, "events", EVENT_COLUMNS, [msgspec.structs.astuple(event) for event in session.events])
        head = ("session_id", *HEAD_COLUMNS, "turns_generation", "messages_generation")
        await _insert(connection, "sessions", head, [(session.session_id, *session.head, 1, 1)])
        for table, columns, rows in (
            ("turns", TURN_COLUMNS, session.stored.turns),
            ("messages", MESSAGE_COLUMNS, session.stored.messages),
        ):
            names = ("session_id", "generation", *columns)
            await _insert(connection, table, names, [(session.session_id, 1, *row) for row in rows])
        replies = [(session.session_id, r.key, b"", r.fence, r.reply) for r in session.stored.replies]
        names = ("session_id", "idempotency_key", "fingerprint", "fence", "reply")
        await _insert(connection, "command_log", names, replies)
        count += len(session.events)
    return count


async def _insert(connection: Any, table: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    marks = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
    await connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)  # noqa: S608
