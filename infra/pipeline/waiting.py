"""Commands of sessions whose lock somebody else holds.

All commands of such a session form one group, which waits apart from everybody else: on a connection of a small pool of
its own, holding nothing but its place in the lock's queue. Where all those connections are taken, the group tries again
with jitter.
"""

import asyncio
import random
from collections import deque

import asyncpg
import structlog

from domain.clock import Monotonic
from domain.commands import ClaimTurn
from domain.errors import LockTimeout, NothingToClaim, StoreUnavailable
from domain.ids import SessionId
from infra.pipeline.faults import FAULTS
from infra.pipeline.group import wait_for_lock
from infra.pipeline.member import Member
from infra.pipeline.runner import Runner
from infra.pipeline.settings import PipelineSettings
from infra.postgres.pool import Pool

_log = structlog.get_logger(__name__)


class WaitingRoom:
    """At most `waiting_sessions` sessions, each with one task that lives as long as members wait."""

    def __init__(
        self, pool: Pool, runner: Runner, clock: Monotonic, settings: PipelineSettings, tasks: asyncio.TaskGroup
    ) -> None:
        """`pool` has as many connections as may wait at once, with a lock_timeout of its own."""
        self._pool = pool
        self._runner = runner
        self._clock = clock
        self._settings = settings
        self._tasks = tasks
        self._slots = asyncio.Semaphore(settings.waiters)
        self._groups: dict[SessionId, deque[Member]] = {}

    def __contains__(self, session_id: SessionId) -> bool:
        return session_id in self._groups

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, member: Member) -> None:
        """Wait for the session's lock. A claim is refused instead: whoever holds the lock may be claiming. Settles the
        member with Unavailable where a bound is reached."""
        if isinstance(member.command, ClaimTurn):
            member.settle(NothingToClaim())
            return
        session_id = member.command.session_id
        group = self._groups.get(session_id)
        if group is None:
            if len(self._groups) >= self._settings.waiting_sessions:
                member.settle(LockTimeout(seconds=0))
                return
            group = self._groups[session_id] = deque()
            self._tasks.create_task(self._wait(session_id, group), name=f"waiting for session {session_id}")
        if len(group) >= self._settings.waiting_commands:
            member.settle(StoreUnavailable())
            return
        member.blocked(self._clock.monotonic(), self._settings.lock_timeout)
        group.append(member)

    def divert(self, members: list[Member]) -> list[Member]:
        """Let those wait whose session has older commands waiting here; returns the others."""
        if not self._groups:
            return members
        others = []
        for member in members:
            if member.command.session_id in self._groups:
                self.add(member)
            else:
                others.append(member)
        return others

    def expire(self, now: float) -> None:
        """Settle those that have waited long enough."""
        for group in self._groups.values():
            for member in group:
                if member.lock_deadline <= now:
                    member.settle(LockTimeout(seconds=self._settings.lock_timeout))

    async def _wait(self, session_id: SessionId, group: deque[Member]) -> None:
        """Until the group is empty. Members stay in it while their transaction runs, so that later ones queue
        behind."""
        try:
            while True:
                while group and group[0].over:
                    group.popleft()
                if not group:
                    return
                if self._slots.locked():
                    await asyncio.sleep(random.uniform(0.02, 0.08))
                    await self._runner.run(self._head(group))
                else:
                    async with self._slots:
                        await self._blocking(group)
        finally:
            for member in group:
                member.settle(StoreUnavailable())
            del self._groups[session_id]

    async def _blocking(self, group: deque[Member]) -> None:
        members = self._head(group)
        try:
            await self._runner.commit(self._pool, members, wait_for_lock)
        except asyncpg.LockNotAvailableError:
            self.expire(self._clock.monotonic())
        except FAULTS as error:
            _log.warning("waiting group failed", error=type(error).__name__, commands=len(members))
            await asyncio.sleep(random.uniform(0.02, 0.08))
            await self._runner.run(members)
        except Exception:  # noqa: BLE001 - a fault of ours: run again, where it is found out who met it
            _log.exception("waiting group broke", commands=len(members))
            await self._runner.run(members)

    def _head(self, group: deque[Member]) -> list[Member]:
        return [member for member in list(group)[: self._settings.group_size] if not member.over]
