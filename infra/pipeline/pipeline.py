"""The command pipeline of a process: the only way by which events come to be."""

import asyncio
from collections.abc import Callable
from collections.abc import Sequence as Many
from typing import Self
from zlib import crc32

from domain.clock import IdSource, Monotonic
from domain.commands import Command
from domain.errors import StoreUnavailable
from domain.ports import Notifier, Outcome, SessionProjection
from infra.pipeline.group import GroupTransaction
from infra.pipeline.lane import Lane
from infra.pipeline.member import Member
from infra.pipeline.runner import Runner
from infra.pipeline.settings import PipelineSettings
from infra.pipeline.versions import Versions
from infra.pipeline.waiting import WaitingRoom
from infra.postgres.pool import Pool

_SWEEP_SECONDS = 0.1


class Pipeline:
    """Implements `domain.ports.CommandPipeline` on PostgreSQL; an async context manager that owns its tasks.

    Commands that arrive together are grouped, one transaction a group; a session's commands run in the order in which
    `execute` was called. Leaving the context runs what is queued, then stops.
    """

    def __init__(
        self,
        pool: Pool,
        waiting_pool: Pool,
        *,
        projections: Many[SessionProjection],
        notifier: Notifier,
        clock: Monotonic,
        ids: IdSource,
        settings: PipelineSettings | None = None,
    ) -> None:
        """`pool`: at least one connection a lane. `waiting_pool`: `settings.waiters` connections that block on advisory
        locks, their lock_timeout `settings.lock_timeout` (see `infra.pipeline.pools`). Of `clock` only the monotonic
        scale is used, for deadlines: what is judged and stored goes by the database's clock."""
        self._settings = settings or PipelineSettings()
        self._pool = pool
        self._waiting_pool = waiting_pool
        self._clock = clock
        transaction = GroupTransaction(Versions(projections), ids, self._settings)
        self._runner = Runner(pool, transaction, notifier, clock, self._settings.wake_pool)
        self._lanes: list[Lane] = []
        self._pending: set[Member] = set()
        self._tasks = asyncio.TaskGroup()
        self._waiting: WaitingRoom | None = None
        self._sweeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        settings = self._settings
        self._waiting = WaitingRoom(self._waiting_pool, self._runner, self._clock, settings, self._tasks)
        self._lanes = [
            Lane(self._runner, self._waiting, settings.group_size, settings.lane_queue) for _ in range(settings.lanes)
        ]
        for number, lane in enumerate(self._lanes):
            self._tasks.create_task(lane.serve(), name=f"lane {number}")
        self._sweeper = self._tasks.create_task(self._sweep(), name="deadlines of commands")
        return self

    async def __aexit__(self, *exc: object) -> None:
        for lane in self._lanes:
            lane.close()
        try:
            while self._pending:
                await asyncio.wait([member.future for member in self._pending])
                await asyncio.sleep(0)
        finally:
            if self._sweeper is not None:
                self._sweeper.cancel()
            await self._tasks.__aexit__(None, None, None)

    async def execute(self, command: Command, *, deadline: float | None = None) -> Outcome:
        """See `CommandPipeline`. Also raises StoreUnavailable when the deadline passes first: the command may still be
        committed then, and a repeat with its key tells."""
        if not self._lanes or self._waiting is None:
            raise StoreUnavailable()
        if deadline is None:
            deadline = self._clock.monotonic() + self._settings.command_seconds
        member = Member(command, deadline, asyncio.get_running_loop().create_future())
        if command.session_id in self._waiting:
            self._waiting.add(member)
        else:
            self._lanes[crc32(command.session_id.encode()) % len(self._lanes)].put(member)
        self._pending.add(member)
        try:
            return await member.future
        finally:
            self._pending.discard(member)

    @property
    def pending(self) -> int:
        """Commands that are not answered yet."""
        return len(self._pending)

    def observe(self, committed: Callable[[int], None]) -> None:
        """Calls it with the size of each group that is committed."""
        self._runner.committed = committed

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = self._clock.monotonic()
            for member in self._pending:
                if member.deadline <= now:
                    member.settle(StoreUnavailable())
            if self._waiting is not None:
                self._waiting.expire(now)
