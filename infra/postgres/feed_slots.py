"""Feed projections in the database: their tables in three slots, who runs each, how far it is, what it could not apply.

A projection's tables lie in the schema of their slot, and its statements name no schema: the same code writes what is
served, what a rebuild makes and what a rollback catches up.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from collections.abc import Sequence as Many
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec

from domain.errors import StoreUnavailable, TurnlogError
from domain.ids import Sequence, SessionId
from domain.ports import FeedPosition, FeedProjection, Statement, Transaction
from infra.postgres.pool import UNREACHABLE, Pool, fetch
from infra.postgres.sql import statements

Slot = Literal["serving", "shadow", "previous"]
SCHEMAS: dict[Slot, str] = {"serving": "feed", "shadow": "feed_shadow", "previous": "feed_previous"}

_SQL = statements("feed_slots")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
COUNTED_EVENTS = 100_000
"""Lag in events is counted up to here."""

_COMPARING_SECONDS = 3600

Write = Callable[[Transaction], Awaitable[None]]


class ClaimLost(TurnlogError):
    """Another runner has the projection now, or its tables were swapped: nothing was written."""

    code = "projection_claim_lost"
    sentence = "Projection {name} is run by another process now."


class BadProjection(TurnlogError):
    """A projection that cannot be run; the text is one line."""

    code = "bad_projection"
    sentence = "Projection {name} cannot be run: {reason}."


class Place(msgspec.Struct, frozen=True):
    """A slot as it was read or claimed."""

    version: int
    tables: list[str]
    at: FeedPosition
    fence: int


class SlotState(msgspec.Struct, frozen=True, kw_only=True):
    """A slot for people and metrics. `lag_events` is at most COUNTED_EVENTS; `lag_seconds` is the age of the oldest
    event that was not applied, 0 where there is none; `running`: somebody's claim has not expired."""

    name: str
    slot: str
    version: int
    running: bool
    lag_events: int
    lag_seconds: float
    parked: int


class Parked(msgspec.Struct, frozen=True):
    """An event that was set aside. `reason` begins with the type of the error."""

    name: str
    session_id: SessionId
    sequence: Sequence
    reason: str
    attempts: int
    parked_at: int


def check(projection: FeedProjection) -> None:
    """Raises BadProjection for names that could not be those of a table's place."""
    if not _NAME.fullmatch(str(projection.name)) or not projection.tables:
        raise BadProjection(name=projection.name, reason="name and tables must be lower-case words, at least one table")
    for table in projection.tables:
        if not _NAME.fullmatch(table):
            raise BadProjection(name=projection.name, reason=f"table {table!r} is not a lower-case word")


class PostgresFeedSlots:
    """For the projector's role. Every method raises StoreUnavailable; steps also raise what the projection raises."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def states(self) -> list[SlotState]:
        """All slots of all projections that ever ran here."""
        return await slot_states(self._pool)

    async def place(self, name: str, slot: Slot) -> Place | None:
        """Where a slot is; None where there is none."""
        rows = await fetch(self._pool, _SQL["slot"], name, slot)
        return _place(rows[0]) if rows else None

    async def open(self, projection: FeedProjection, slot: Slot) -> Place:
        """The slot, made with its tables where it was not there. Raises BadProjection where its definition fails."""
        check(projection)
        async with self._transaction() as tx:
            await tx.execute(_SQL["lock_tables"], projection.name)
            rows = await tx.fetch(_SQL["slot"], projection.name, slot)
            if not rows:
                schema, tables = SCHEMAS[slot], list(projection.tables)
                await self._run_made(tx, "drop_tables", schema, tables)
                await tx.execute(_SQL["place"], schema)
                await tx.execute(projection.definition)
                await self._run_made(tx, "grant_reads", schema, tables)
                await tx.execute(_SQL["open_slot"], projection.name, slot, projection.version, tables)
                rows = await tx.fetch(_SQL["slot"], projection.name, slot)
            return _place(rows[0])

    async def claim(self, name: str, slot: Slot, runner: str, seconds: float, *, force: bool = False) -> Place | None:
        """The slot as ours for so long; None while another's claim runs, unless forced."""
        rows = await fetch(self._pool, _SQL["claim"], name, slot, runner, seconds, force)
        return _place(rows[0]) if rows else None

    async def renew(self, name: str, slot: Slot, fence: int, seconds: float) -> None:
        """Keep a claim on which nothing happens. Raises ClaimLost."""
        if not await fetch(self._pool, _SQL["renew"], name, slot, fence, seconds):
            raise ClaimLost(name=name)

    async def release(self, name: str, slot: Slot, fence: int) -> None:
        """Let others have it at once."""
        await fetch(self._pool, _SQL["release"], name, slot, fence)

    async def step(
        self, name: str, slot: Slot, fence: int, before: FeedPosition, after: FeedPosition, seconds: float, write: Write
    ) -> None:
        """One transaction: the checkpoint moves from `before` to `after`, and `write` writes. Raises ClaimLost."""
        async with self._transaction() as tx:
            places = (str(before.transaction_id), before.position, str(after.transaction_id), after.position)
            if not await tx.fetch(_SQL["advance"], name, slot, fence, *places, seconds):
                raise ClaimLost(name=name)
            await tx.execute(_SQL["place"], SCHEMAS[slot])
            await write(tx)

    async def write(self, name: str, slot: Slot, write: Write) -> None:
        """Write into a slot that exists without moving it; while it lasts nobody moves its tables."""
        async with self._transaction() as tx:
            await tx.execute(_SQL["lock_tables"], name)
            if await tx.fetch(_SQL["slot"], name, slot):
                await tx.execute(_SQL["place"], SCHEMAS[slot])
                await write(tx)

    async def park(self, tx: Transaction, name: str, session_id: str, sequence: int, reason: str) -> None:
        """Set an event aside, in a step's transaction."""
        await tx.execute(_SQL["park"], name, session_id, sequence, reason)

    async def parked(self, name: str | None = None) -> list[Parked]:
        """What was set aside."""
        return [Parked(**row) for row in await fetch(self._pool, _SQL["parked"], name)]

    async def unpark(self, tx: Transaction, parked: Parked) -> bool:
        """Take it back, in the transaction that applies it; False where another did."""
        return bool(await tx.fetch(_SQL["unpark"], parked.name, parked.session_id, parked.sequence))

    async def forget_reasons(self, tx: Transaction, name: str, session_id: str) -> None:
        """Of a session that was erased."""
        await tx.execute(_SQL["forget_reasons"], name, session_id)

    async def drop(self, name: str, slot: Slot) -> None:
        """Remove a slot with its tables."""
        async with self._transaction() as tx:
            await tx.execute(_SQL["lock_tables"], name)
            await self._drop(tx, name, slot)

    async def differences(self, name: str, tables: Many[str], slot: Slot) -> dict[str, tuple[int, list[str]]]:
        """Tables of a slot that differ from those served: how many rows only one of the two has, and some sessions. In
        one snapshot without a transaction id, so that no feed waits for it."""
        found: dict[str, tuple[int, list[str]]] = {}
        try:
            async with (
                self._pool.acquire(timeout=5) as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                await connection.execute(_SQL["may_take_long"], str(1000 * _COMPARING_SECONDS))
                for table in tables:
                    made = await connection.fetchval(_SQL["difference"], SCHEMAS["serving"], table, SCHEMAS[slot])
                    row = await connection.fetchrow(made, timeout=_COMPARING_SECONDS + 5)
                    if row is not None and row["rows"]:
                        found[table] = (row["rows"], [s for s in row["sessions"] or [] if s is not None])
        except UNREACHABLE as error:
            raise StoreUnavailable() from error
        return found

    async def swap(self, name: str, slot: Slot, fence: int) -> None:
        """What is in that slot is served from now on, and what was served is the previous one. Claims end. Raises
        ClaimLost."""
        async with self._transaction() as tx:
            await tx.execute(_SQL["lock_tables"], name)
            rows = await tx.fetch(_SQL["slot"], name, slot)
            if not rows or rows[0]["fence"] != fence:
                raise ClaimLost(name=name)
            coming = list(rows[0]["tables"])
            if slot == "shadow":
                await self._drop(tx, name, "previous")
                await self._move(tx, name, "serving", "previous")
            else:
                await self._drop(tx, name, "shadow")
                await self._move(tx, name, "serving", "shadow")
            await self._move(tx, name, slot, "serving", coming)
            if slot == "previous":
                await self._move(tx, name, "shadow", "previous")
            await tx.execute(_SQL["clear_parked"], name)

    async def events_after(self, at: FeedPosition) -> int:
        """How many events lie after that place: a full count, for progress."""
        rows = await fetch(self._pool, _SQL["events_after"], str(at.transaction_id), at.position)
        return int(rows[0]["events"])

    async def _move(
        self, tx: Transaction, name: str, source: Slot, target: Slot, tables: list[str] | None = None
    ) -> None:
        rows = await tx.fetch(_SQL["slot"], name, source)
        if rows:
            moved = tables if tables is not None else list(rows[0]["tables"])
            await self._run_made(tx, "move_tables", SCHEMAS[source], moved, SCHEMAS[target])
            await tx.execute(_SQL["rename_slot"], name, source, target)

    async def _drop(self, tx: Transaction, name: str, slot: Slot) -> None:
        rows = await tx.fetch(_SQL["slot"], name, slot)
        if rows:
            await self._run_made(tx, "drop_tables", SCHEMAS[slot], list(rows[0]["tables"]))
            await tx.execute(_SQL["drop_slot"], name, slot)

    async def _run_made(self, tx: Transaction, statement: str, *args: Any) -> None:
        for row in await tx.fetch(_SQL[statement], *args):
            await tx.execute(Statement(row["made"]))

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        try:
            async with self._pool.acquire(timeout=5) as connection, connection.transaction():
                yield connection
        except UNREACHABLE as error:
            raise StoreUnavailable() from error


async def slot_states(pool: Pool) -> list[SlotState]:
    """How far every projection is; also for roles that only read."""
    rows = await fetch(pool, _SQL["slots"], COUNTED_EVENTS)
    return [
        SlotState(
            name=row["name"],
            slot=row["slot"],
            version=row["version"],
            running=row["running"],
            lag_events=row["events"],
            lag_seconds=row["oldest"],
            parked=row["parked"],
        )
        for row in rows
    ]


def _place(row: Any) -> Place:
    at = FeedPosition(int(row["transaction_id"]), row["position"])
    return Place(row["version"], list(row["tables"]), at, row["fence"])
