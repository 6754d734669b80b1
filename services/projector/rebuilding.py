"""A rebuild of `turns` or `messages` while everything goes on: a new generation of rows, session by session.

Some sessions at a time: their rows are built up to where each was, without a lock; then, under the sessions' locks, the
few events that came meanwhile are applied, the rows are compared with a second fresh fold and with those that are
served, and the sessions are served from the new rows. New sessions are born in the new generation. A rebuild that was
killed goes on with the sessions that are left, building each anew.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import asyncpg
import msgspec

from domain.errors import StoreUnavailable, TurnlogError
from domain.events import registry
from domain.ids import Generation, SessionId
from domain.ports import AppliedEvent, SessionProjection, Transaction
from infra.pipeline.group import try_locks, wait_for_lock
from infra.pipeline.versions import read_generations
from infra.postgres.pool import UNREACHABLE, Pool, fetch
from infra.postgres.sql import statements
from projections.audit.models import Row, difference
from projections.refolding import COLUMNS, EVENT_TYPES, FreshRows, Refold

_SQL = statements("rebuild")
_LOWEST = "00000000-0000-0000-0000-000000000000"

SESSIONS_AT_ONCE = 50
EVENTS_AT_ONCE = 2000


class RebuildRefused(TurnlogError):
    """A rebuild that makes no sense; the text is one line."""

    code = "rebuild_refused"
    sentence = "{reason}."


class Difference(msgspec.Struct, frozen=True):
    """A row that is not what it should be. `against`: `served`, what is served now (only where both are of one
    version); `fold`, a second fold of the same events, which is a fault of the code. Values are users' content and are
    not told."""

    session_id: str
    row: str
    against: str
    columns: str


class Report(msgspec.Struct):
    """What a rebuild came to. `refused`: sessions that are still served from their old rows."""

    flipped: int = 0
    refused: int = 0
    differences: list[Difference] = []

    def merge(self, other: "Report") -> None:
        """Add what another part came to."""
        self.flipped += other.flipped
        self.refused += other.refused
        self.differences += other.differences


class Target(msgspec.Struct, frozen=True):
    """The generation that a rebuild writes, of that version. `versions`: of the older ones."""

    name: str
    generation: int
    version: int
    versions: dict[int, int]


class Left(msgspec.Struct, frozen=True):
    """How much of a rebuild is left."""

    sessions: int
    sessions_left: int
    events: int
    events_left: int


async def choose(pool: Pool, projections: tuple[SessionProjection, ...], name: str, *, rollback: bool) -> Target:
    """The generation to build: that of a rebuild which has not finished, else a new one of the newest version in this
    code, or, for a rollback, of the version that was served before. Raises RebuildRefused, StoreUnavailable."""
    async with pool.acquire() as connection:
        known = await read_generations(connection)
    versions = {generation: version for (n, generation), version in known.versions.items() if n == name}
    have = sorted(p.version for p in projections if p.name == name)
    newest = max(versions)
    wanted = have[-1]
    if rollback:
        if newest - 1 not in versions:
            raise RebuildRefused(reason=f"{name} has had one generation only: there is nothing to go back to")
        wanted = versions[newest - 1]
        if wanted not in have:
            reason = f"version {wanted} of {name} is not in this release: run the one that has it"
            raise RebuildRefused(reason=reason)
    elif versions[newest] > wanted:
        raise RebuildRefused(reason=f"{name} has version {versions[newest]} and this release only {wanted}: upgrade it")
    unfinished = (await left(pool, name, newest)).sessions_left > 0
    if not (unfinished and versions[newest] == wanted):
        rows = await fetch(pool, _SQL["open_generation"], name, wanted)
        newest = rows[0]["generation"]
        versions[newest] = wanted
    return Target(name, newest, wanted, versions)


async def left(pool: Pool, name: str, generation: int) -> Left:
    """What is left of a rebuild to that generation."""
    (row,) = await fetch(pool, _SQL["left"], name, generation)
    return Left(row["sessions"], row["sessions_left"], row["events"], row["events_left"])


@asynccontextmanager
async def alone(dsn: str, name: str) -> AsyncIterator[None]:
    """Nobody else rebuilds that read model as long as the block, parts of a killed one included. Raises RebuildRefused
    where somebody does."""
    async with _lock_connection(dsn) as connection:
        try:
            await connection.execute(_SQL["lock"], name)
        except asyncpg.LockNotAvailableError:
            raise RebuildRefused(reason=f"another rebuild of {name} runs") from None
        # Shared from here on, with the parts.
        await connection.execute(_SQL["share"], name)
        await connection.execute(_SQL["unlock"], name)
        yield


@asynccontextmanager
async def beside(dsn: str, name: str) -> AsyncIterator[None]:
    """A part of the rebuild, in a process of its own."""
    async with _lock_connection(dsn) as connection:
        await connection.execute(_SQL["share"], name)
        yield


@asynccontextmanager
async def _lock_connection(dsn: str) -> AsyncIterator[Any]:
    # The lock ends with the connection, thus with the process.
    settings = {"application_name": "turnlog rebuild", "lock_timeout": "5000"}
    try:
        connection = await asyncpg.connect(dsn, timeout=5, server_settings=settings)
    except UNREACHABLE as error:
        raise StoreUnavailable() from error
    try:
        yield connection
    finally:
        connection.terminate()


class _Building:
    """One session on its way: `upto` is the sequence its new rows are as of."""

    def __init__(self, name: str, row: Any, generation: int) -> None:
        self.session_id: SessionId = row["session_id"]
        self.goal: int = row["last_sequence"]
        self.serving: int = row["generation"]
        self.upto = 0
        self.refold = Refold(name, self.session_id, Generation(generation))
        self.fresh = FreshRows(name, self.session_id)
        self.rows: dict[str, Row] = {}
        self.built: set[str] = set()
        self.served: set[str] = set()
        self.compared_to = 0
        self.differences: list[Difference] = []


class SessionRebuild:
    """One part of a rebuild; several may run at the same time, each with its own part of the sessions."""

    def __init__(
        self, pool: Pool, projection: SessionProjection, target: Target, *, accept: bool, part: int = 0, parts: int = 1
    ) -> None:
        """`pool`: of the worker role. `accept`: flip also where the new rows differ from those served."""
        self._pool = pool
        self._projection = projection
        self._target = target
        self._accept = accept
        self._part, self._parts = part, parts
        self._types = EVENT_TYPES[target.name]
        self._columns = COLUMNS[target.name]
        self._place = self._columns.index("last_sequence")

    async def run(self, progress: Callable[[Report], None] = lambda report: None) -> Report:
        """Until no session of this part is left. Raises StoreUnavailable, IllegalTransition."""
        report = Report()
        after = _LOWEST
        target = self._target
        while True:
            rows = await fetch(
                self._pool,
                _SQL["pending"],
                target.name,
                target.generation,
                after,
                self._parts,
                self._part,
                SESSIONS_AT_ONCE,
            )
            if not rows:
                return report
            after = rows[-1]["session_id"]
            some: list[_Building] = []
            events = 0
            for row in rows:
                some.append(_Building(target.name, row, target.generation))
                events += row["last_sequence"]
                if events >= EVENTS_AT_ONCE:
                    await self._rebuild(some, report)
                    some, events = [], 0
                    progress(report)
            if some:
                await self._rebuild(some, report)
            progress(report)

    async def _rebuild(self, some: list[_Building], report: Report) -> None:
        await self._build(some)
        waiting = some
        while waiting:
            blocked = await self._flip(waiting, report, wait=len(waiting) == 1)
            # One that others hold is waited for by itself, so that its wait holds up nobody else.
            for one in blocked[1:] if len(waiting) > 1 else []:
                while await self._flip([one], report, wait=True):
                    pass
            waiting = blocked[:1]

    async def _build(self, some: list[_Building]) -> None:
        """Up to where each session was, in transactions that stay short."""
        target, ids = self._target, [one.session_id for one in some]
        await fetch(self._pool, _SQL["clear"], target.name, target.generation, ids)
        going = some
        while going:
            async with self._pool.acquire() as connection, connection.transaction():
                await self._advance(connection, going)
            going = [one for one in going if one.upto < one.goal]
        async with self._pool.acquire() as connection:
            await self._compare(connection, some)

    async def _advance(self, connection: Any, some: list[_Building]) -> None:
        """Apply one page of each, up to its goal."""
        target = self._target
        rows = await connection.fetch(
            _SQL["events"],
            [one.session_id for one in some],
            [one.upto for one in some],
            [one.goal for one in some],
            None if self._types is None else list(self._types),
            EVENTS_AT_ONCE,
        )
        pages: dict[str, list[AppliedEvent]] = {}
        # What was erased is shown by no message; turns are as its skeletons fold.
        hidden: set[str] = set()
        for row in rows:
            data = registry.decode(row["type"], row["schema_version"], row["payload"])
            event = AppliedEvent(row["sequence"], row["event_id"], row["turn_id"], row["created_at"], data)
            pages.setdefault(row["session_id"], []).append(event)
            if row["erased"] and target.name == "messages":
                hidden.add(event.event_id)
        changes = []
        for one in some:
            page = pages.get(one.session_id, [])
            one.upto = page[-1].sequence if len(page) == EVENTS_AT_ONCE else one.goal
            if page:
                shown = [event for event in page if event.event_id not in hidden]
                one.fresh.apply(shown)
                changes.append(msgspec.structs.replace(one.refold.change(page), events=shown))
        if changes:
            await self._projection.apply(changes, cast(Transaction, connection))

    async def _flip(self, some: list[_Building], report: Report, *, wait: bool) -> list[_Building]:
        """Under their locks: what came meanwhile, the comparison, and the new rows are served. Those whose lock others
        hold are returned."""
        target = self._target
        try:
            async with self._pool.acquire() as connection, connection.transaction():
                ids = [one.session_id for one in some]
                locked = await (wait_for_lock if wait else try_locks)(connection, ids)
                mine = [one for one in some if one.session_id in locked]
                heads = {
                    row["session_id"]: row for row in await connection.fetch(_SQL["heads"], target.name, list(locked))
                }
                for one in mine:
                    one.goal = heads[one.session_id]["last_sequence"]
                while moving := [one for one in mine if one.upto < one.goal]:
                    await self._advance(connection, moving)
                await self._compare(connection, mine)
                good = [one for one in mine if self._may_flip(one)]
                if good:
                    flipped = [one.session_id for one in good]
                    await connection.execute(_SQL["flip"], target.name, flipped, target.generation)
        except asyncpg.LockNotAvailableError:
            return some
        report.flipped += len(good)
        report.refused += len(mine) - len(good)
        report.differences += [found for one in mine for found in one.differences]
        return [one for one in some if one.session_id not in locked]

    def _may_flip(self, one: _Building) -> bool:
        missing = {"fold": one.rows.keys() - one.built}
        if self._same_version(one):
            missing["served"] = one.rows.keys() - one.served
        for against, ids in missing.items():
            one.differences += [Difference(one.session_id, row, against, "there is no such row") for row in sorted(ids)]
        if any(found.against == "fold" for found in one.differences):
            return False
        return self._accept or not one.differences

    async def _compare(self, connection: Any, some: list[_Building]) -> None:
        """New rows and, of the same version, served ones, with the second fold: those that changed since the last time.
        A served row that is newer than the fold is compared later, under the lock."""
        target, changed = self._target, [one for one in some if one.upto > one.compared_to]
        for one in changed:
            one.rows = one.fresh.rows()
        for against, places in (
            ("fold", [(one, target.generation) for one in changed]),
            ("served", [(one, one.serving) for one in changed if self._same_version(one)]),
        ):
            by_id = {one.session_id: one for one, _ in places}
            if not by_id:
                continue
            rows = await connection.fetch(
                _SQL[target.name],
                list(by_id),
                [generation for _, generation in places],
                [one.compared_to for one, _ in places],
            )
            seen: set[str] = set()
            for row in rows:
                session_id, *values = tuple(row)
                seen.add(values[0])
                self._judge(by_id[session_id], tuple(values), against)
            for one in by_id.values():
                self._stale(one, seen, against)
        for one in changed:
            one.compared_to = one.upto

    def _judge(self, one: _Building, row: Row, against: str) -> None:
        if against == "served" and row[self._place] > one.upto:
            return
        (one.built if against == "fold" else one.served).add(row[0])
        due = one.rows.get(row[0])
        if due != row:
            what = "the log has no such row" if due is None else difference(self._columns, row, due)
            one.differences.append(Difference(one.session_id, row[0], against, what))

    def _stale(self, one: _Building, seen: set[str], against: str) -> None:
        """Rows that the newest events should have changed and did not."""
        known = one.built if against == "fold" else one.served
        for row_id, due in one.rows.items():
            if due[self._place] > one.compared_to and row_id in known and row_id not in seen:
                one.differences.append(Difference(one.session_id, row_id, against, "it is older than its newest event"))

    def _same_version(self, one: _Building) -> bool:
        return self._target.versions.get(one.serving) == self._target.version
