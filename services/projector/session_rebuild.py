"""A rebuild of `turns` or `messages` while everything goes on: a new generation of rows, session by session.

Some sessions at a time: their rows are built up to where each was, without a lock; then, under the sessions' locks, the
few events that came meanwhile are applied, the rows are compared with a second fresh fold and with those that are
served, and the sessions are served from the new rows. New sessions are born in the new generation. A rebuild that was
killed goes on with the sessions that are left, building each anew.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, cast

import asyncpg

from domain.errors import StoreUnavailable
from domain.events import registry
from domain.ports import AppliedEvent, SessionProjection, Transaction
from infra.pipeline.group import try_locks, wait_for_lock
from infra.postgres.pool import UNREACHABLE, Pool, fetch
from infra.postgres.sql import statements
from projections.refolding import EVENT_TYPES
from services.projector.comparing import Building, Comparison
from services.projector.generations import Target
from services.projector.rebuild_report import Report

_SQL = statements("rebuild")
_LOWEST = "00000000-0000-0000-0000-000000000000"

LANES = 2
"""Groups of sessions that are under way in one process: one is folded here while the server writes another."""
SESSIONS_AT_ONCE = 100
EVENTS_AT_ONCE = 3000
_PAGE_BYTES = 4 * 1024 * 1024
_CONNECTION_SECONDS = 30.0


class SessionRebuild:
    """One part of a rebuild; several may run at the same time, each with its own part of the sessions."""

    def __init__(
        self, pool: Pool, projection: SessionProjection, target: Target, *, accept: bool, part: int = 0, parts: int = 1
    ) -> None:
        """`pool`: of `rebuild_pool`. `accept`: flip also where the new rows differ from those served."""
        self._pool = pool
        self._projection = projection
        self._target = target
        self._accept = accept
        self._part, self._parts = part, parts
        self._types = EVENT_TYPES[target.name]
        self._page = EVENTS_AT_ONCE // 4
        self._comparison = Comparison(target)
        self._report = Report()

    async def run(self, progress: Callable[[Report], None] = lambda report: None) -> Report:
        """Until no session of this part is left. Raises StoreUnavailable, IllegalTransition."""
        groups: asyncio.Queue[list[Building] | None] = asyncio.Queue(maxsize=1)

        async def lane() -> None:
            while (some := await groups.get()) is not None:
                await self._rebuild(some)
                progress(self._report)

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(LANES):
                    tasks.create_task(lane())
                async with aclosing(self._groups()) as pending:
                    async for some in pending:
                        await groups.put(some)
                for _ in range(LANES):
                    await groups.put(None)
        except BaseExceptionGroup as failed:
            # The first one is why the others stopped.
            raise failed.exceptions[0] from failed
        return self._report

    async def _groups(self) -> AsyncGenerator[list[Building], None]:
        """Sessions of this part that are left, as many at a time as have some EVENTS_AT_ONCE events together."""
        target, after = self._target, _LOWEST
        some: list[Building] = []
        events = 0
        while rows := await fetch(
            self._pool,
            _SQL["pending"],
            target.name,
            target.generation,
            after,
            self._parts,
            self._part,
            SESSIONS_AT_ONCE,
            timeout=_CONNECTION_SECONDS,
        ):
            after = rows[-1]["session_id"]
            for row in rows:
                some.append(Building(target.name, row, target.generation))
                events += row["last_sequence"]
                if events >= EVENTS_AT_ONCE or len(some) == SESSIONS_AT_ONCE:
                    yield some
                    some, events = [], 0
        if some:
            yield some

    async def _rebuild(self, some: list[Building]) -> None:
        try:
            await self._build(some)
            waiting = some
            while waiting:
                blocked = await self._flip(waiting, wait=len(waiting) == 1)
                # One that others hold is waited for by itself, so that its wait holds up nobody else.
                for one in blocked[1:] if len(waiting) > 1 else []:
                    while await self._flip([one], wait=True):
                        pass
                waiting = blocked[:1]
        except UNREACHABLE as error:
            raise StoreUnavailable() from error

    async def _build(self, some: list[Building]) -> None:
        """Up to where each session was, in transactions that stay short."""
        target = self._target
        if not target.untouched:
            ids = [one.session_id for one in some]
            await fetch(self._pool, _SQL["clear"], target.name, target.generation, ids, timeout=_CONNECTION_SECONDS)
        going = some
        while going:
            async with self._pool.acquire(timeout=_CONNECTION_SECONDS) as connection, connection.transaction():
                await self._advance(connection, going)
            going = [one for one in going if one.upto < one.goal]
        for one in some:
            if not one.compared:
                async with self._pool.acquire(timeout=_CONNECTION_SECONDS) as connection:
                    await self._comparison.served(connection, one)

    async def _advance(self, connection: Any, some: list[Building]) -> None:
        """Apply one page of each, up to its goal, and compare what that wrote."""
        limit = self._page
        rows = await connection.fetch(
            _SQL["events"],
            [one.session_id for one in some],
            [one.upto for one in some],
            [one.goal for one in some],
            None if self._types is None else list(self._types),
            limit,
        )
        self._fit(sum(len(row["payload"]) for row in rows))
        pages: list[list[AppliedEvent]] = [[] for _ in some]
        # What was erased is shown by no message; turns are as its skeletons fold.
        hides = self._target.name == "messages"
        hidden: set[str] = set()
        decode = registry.decode
        for place, sequence, event_id, type_, version, turn_id, created_at, payload, erased in rows:
            event = AppliedEvent(sequence, event_id, turn_id, created_at, decode(type_, version, payload))
            pages[place - 1].append(event)
            if erased and hides:
                hidden.add(event_id)
        await self._take_back(connection, [(one, page) for one, page in zip(some, pages, strict=True) if page])
        changes = []
        for one, page in zip(some, pages, strict=True):
            one.upto = page[-1].sequence if len(page) == limit else one.goal
            if page:
                changes.append(one.refold.change(page, hidden))
        if changes:
            await self._projection.apply(changes, cast(Transaction, connection))
        await self._comparison.written(connection, some)

    async def _take_back(self, connection: Any, pages: list[tuple[Building, list[AppliedEvent]]]) -> None:
        """What the fold has let go of and these events concern."""
        lacking = [(one, place) for one, page in pages for place in one.refold.lacks(page)]
        if not lacking:
            return
        rows = await connection.fetch(
            _SQL[f"{self._target.name}_at"],
            [one.session_id for one, _ in lacking],
            [self._target.generation] * len(lacking),
            [place for _, place in lacking],
        )
        found: dict[str, list[Any]] = {}
        for row in rows:
            found.setdefault(row["session_id"], []).append(row)
        for one, _ in pages:
            one.refold.take_back(found.get(one.session_id, []))

    def _fit(self, size: int) -> None:
        """Pages shrink where events are large."""
        if size > _PAGE_BYTES:
            self._page = max(20, self._page // 4)
        elif size < _PAGE_BYTES // 4:
            self._page = min(EVENTS_AT_ONCE, self._page * 2)

    async def _flip(self, some: list[Building], *, wait: bool) -> list[Building]:
        """Under their locks: what came meanwhile, the comparison, and the new rows are served. Those whose lock others
        hold are returned."""
        target, report = self._target, self._report
        try:
            async with self._pool.acquire(timeout=_CONNECTION_SECONDS) as connection, connection.transaction():
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
                await self._comparison.settle(connection, mine)
                good = [one for one in mine if self._comparison.may_flip(one, accept=self._accept)]
                if good:
                    flipped = [one.session_id for one in good]
                    await connection.execute(_SQL["flip"], target.name, flipped, target.generation)
        except asyncpg.LockNotAvailableError:
            return some
        report.flipped += len(good)
        report.refused += len(mine) - len(good)
        report.differences += [found for one in mine for found in one.differences]
        return [one for one in some if one.session_id not in locked]
