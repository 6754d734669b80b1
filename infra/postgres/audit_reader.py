"""Everything that is stored of sessions, for an audit: session by session, in pages, in bounded memory."""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from collections.abc import Sequence as Many
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import msgspec

from domain.errors import StoreUnavailable
from domain.events.envelope import StoredEvent
from infra.postgres.pool import UNREACHABLE, prepare
from infra.postgres.sql import statements

_SQL = statements("audit")

LOWEST = "00000000-0000-0000-0000-000000000000"
HIGHEST = "ffffffff-ffff-ffff-ffff-ffffffffffff"

_MOST_ROWS = 2000
_PAGE_BYTES = 4 * 1024 * 1024

Row = tuple[Any, ...]
END = 2**63


class SessionIds(msgspec.Struct, frozen=True):
    """The sessions whose ids lie between these two, both included."""

    first: str = LOWEST
    last: str = HIGHEST


class SessionPage(msgspec.Struct, frozen=True):
    """Some events of one session and the rows that name a sequence up to the last of them, beginning with that sequence
    (`turns`, `messages`: then the columns of the read model; `replies`: then key, fence, reply). The last page of a
    session has no events, but its head and all rows that are left."""

    session_id: str
    events: list[StoredEvent]
    turns: list[Row]
    messages: list[Row]
    replies: list[Row]
    last: bool = False
    head: Row | None = None


class _Rows:
    """A server-side cursor over rows that begin with session_id, read ahead by a page. Pages shrink where rows are
    large, because one row may hold half a megabyte."""

    def __init__(self, cursor: Any, measured: tuple[int, ...] = ()) -> None:
        self._cursor = cursor
        self._measured = measured
        self._page: list[Any] = []
        self._at = 0
        self._size = 250
        self._over = False

    async def peek(self) -> Any | None:
        """The next row."""
        if self._at == len(self._page):
            if self._over:
                return None
            self._page = await self._cursor.fetch(self._size)
            self._at = 0
            self._over = len(self._page) < self._size
            self._fit()
            if not self._page:
                return None
        return self._page[self._at]

    def _fit(self) -> None:
        size = sum(len(row[i] or b"") for row in self._page for i in self._measured)
        if size > _PAGE_BYTES:
            self._size = max(8, self._size // 4)
        elif size < _PAGE_BYTES // 4:
            self._size = min(_MOST_ROWS, self._size * 2)

    async def take(self, session_id: str, upto: int) -> list[Row]:
        """Rows of that session whose second column is at most `upto`, without the session's id."""
        taken: list[Row] = []
        while (row := await self.peek()) is not None and row[0] == session_id and row[1] <= upto:
            self._at += 1
            taken.append(tuple(row)[1:])
        return taken

    async def take_page(self, session_id: str) -> list[Any]:
        """Rows of that session out of what is read already, at least one where there is one."""
        if await self.peek() is None:
            return []
        page, begin = self._page, self._at
        if page[-1][0] == session_id:
            self._at = len(page)
        else:
            while page[self._at][0] == session_id:
                self._at += 1
        return page[begin : self._at]


class AuditReader:
    """Reads through one connection of its own; one thing at a time."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._connection = connection

    async def heads(self) -> AsyncIterator[tuple[str, int, bytes]]:
        """(session_id, last_sequence, head_hash) of every session, in the order of their ids."""
        async with self._connection.transaction(isolation="repeatable_read", readonly=True):
            async for row in self._connection.cursor(_SQL["all_heads"], prefetch=_MOST_ROWS):
                yield row["session_id"], row["last_sequence"], row["head_hash"]

    async def hashes_at(self, places: Many[tuple[str, int]]) -> list[bytes | None]:
        """The hash of each (session_id, sequence), None where there is no such event."""
        rows = await self._connection.fetch(_SQL["hashes_at"], [s for s, _ in places], [n for _, n in places])
        return [row["hash"] for row in rows]

    async def loose_blobs(self, places: Many[tuple[str, str]]) -> list[tuple[tuple[str, str], bool]]:
        """Those pairs of a session and an attachment (SHA-256 in hex) that are not noted as belonging together, and
        whether the attachment is stored."""
        sessions, names = [session for session, _ in places], [bytes.fromhex(name) for _, name in places]
        rows = await self._connection.fetch(_SQL["loose_blobs"], sessions, names)
        return [((row["session_id"], row["sha256"].hex()), row["stored"]) for row in rows]

    async def damaged_blobs(self) -> AsyncIterator[str]:
        """Names of stored attachments whose content has another digest or size than it should, in hex."""
        async with self._connection.transaction(isolation="repeatable_read", readonly=True):
            async for sha256, size in self._connection.cursor(_SQL["blobs"]):
                found, length = hashlib.sha256(), 0
                async for (content,) in self._connection.cursor(_SQL["blob_chunks"], sha256, prefetch=1):
                    found.update(content)
                    length += len(content)
                if (found.digest(), length) != (sha256, size):
                    yield sha256.hex()

    async def ranges(self, events: int) -> list[SessionIds]:
        """The whole space of ids, cut into ranges with about that many events each."""
        rows = await self._connection.fetch(_SQL["chunks"], events)
        ends = [row["session_id"] for row in rows][:-1]
        firsts = [LOWEST, *map(_successor, ends)]
        return [SessionIds(first, last) for first, last in zip(firsts, [*ends, HIGHEST], strict=True)]

    async def pages(self, ids: SessionIds) -> AsyncIterator[SessionPage]:
        """All sessions of the range in one snapshot, also those of which only some tables know. The transaction is read
        only and has no id, so that it holds back no feed; hold no other work in between, since it holds back vacuum."""
        async with self._connection.transaction(isolation="repeatable_read", readonly=True):
            events = await self._open("events", ids, (7, 8))
            heads = await self._open("heads", ids)
            kinds = [await self._open("turns", ids, (4, 20, 21)), await self._open("messages", ids, (7,))]
            kinds.append(await self._open("replies", ids))
            while True:
                first = [row[0] for rows in (events, heads, *kinds) if (row := await rows.peek()) is not None]
                if not first:
                    return
                session_id = min(first)
                while page := await events.take_page(session_id):
                    some = [StoredEvent(*row) for row in page]
                    place = some[-1].sequence
                    turns, messages, replies = [await rows.take(session_id, place) for rows in kinds]
                    yield SessionPage(session_id, some, turns, messages, replies)
                turns, messages, replies = [await rows.take(session_id, END) for rows in kinds]
                head = await heads.take(session_id, END)
                yield SessionPage(session_id, [], turns, messages, replies, True, head[0] if head else None)

    async def events(self, ids: SessionIds) -> AsyncGenerator[list[StoredEvent], None]:
        """Only the events, page by page, in the order (session_id, sequence)."""
        async with self._connection.transaction(isolation="repeatable_read", readonly=True):
            rows = await self._open("events", ids, (7, 8))
            while (row := await rows.peek()) is not None:
                yield [StoredEvent(*row) for row in await rows.take_page(row[0])]

    async def _open(self, name: str, ids: SessionIds, measured: tuple[int, ...] = ()) -> _Rows:
        return _Rows(await self._connection.cursor(_SQL[name], ids.first, ids.last), measured)


@asynccontextmanager
async def open_audit_reader(dsn: str, *, connect_seconds: float = 5.0) -> AsyncIterator[AuditReader]:
    """A reader with a connection of its own. Its statements may take long: sorting all turns of a giant session is one.
    Raises StoreUnavailable where the server cannot be reached."""
    settings = {"application_name": "turnlog audit", "statement_timeout": "600000", "timezone": "UTC", "jit": "off"}
    try:
        connection = await asyncpg.connect(dsn, timeout=connect_seconds, server_settings=settings)
    except UNREACHABLE as error:
        raise StoreUnavailable() from error
    try:
        await prepare(connection)
        yield AuditReader(connection)
    finally:
        await connection.close()


def _successor(session_id: str) -> str:
    digits = f"{int(session_id.replace('-', ''), 16) + 1:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
