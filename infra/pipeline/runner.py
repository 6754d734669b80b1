"""Runs groups to their end: commit, answer, announce; after an error of the database one by one until the deadlines."""

import asyncio
import random
from collections.abc import Callable
from collections.abc import Sequence as Many

import structlog

from domain.clock import Monotonic
from domain.errors import InternalFault, StoreUnavailable
from domain.ports import Notifier
from infra.pipeline.announce import announce
from infra.pipeline.faults import FAULTS, misfit, refusal
from infra.pipeline.group import GroupTransaction, Locking, try_locks
from infra.pipeline.member import Member
from infra.postgres.pool import Pool

_log = structlog.get_logger(__name__)

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.5


class Runner:
    """One a process; keeps nothing between groups."""

    def __init__(
        self, pool: Pool, transaction: GroupTransaction, notifier: Notifier, clock: Monotonic, wake: str
    ) -> None:
        self._pool = pool
        self._transaction = transaction
        self._notifier = notifier
        self._clock = clock
        self._wake = wake
        self.committed: Callable[[int], None] | None = None
        """Told how many commands a transaction held, once it is committed."""

    async def run(self, members: Many[Member]) -> list[Member]:
        """Settle every member but those whose session is locked by another, which are returned. A member that is past
        its deadline is not begun."""
        ready = self._ready(members)
        if not ready:
            return []
        try:
            return await self.commit(self._pool, ready, try_locks)
        except FAULTS as error:
            if misfit(error):
                return self._refuse(ready, error)
            _log.warning("group failed", error=type(error).__name__, commands=len(ready))
        except Exception:  # noqa: BLE001 - a fault of ours: whoever met it is found alone, all others go on
            _log.exception("group broke", commands=len(ready))
        return await self._one_by_one(ready)

    async def commit(self, pool: Pool, members: Many[Member], locking: Locking) -> list[Member]:
        """One transaction. Raises what the database raised; nobody is settled then."""
        async with pool.acquire() as connection:
            result = await self._transaction.run(connection, members, locking)
        for member, answer in result.answers:
            member.settle(answer)
        announce(self._notifier, result.batches, self._wake)
        if self.committed is not None:
            self.committed(len(members))
        return result.blocked

    async def _one_by_one(self, members: Many[Member]) -> list[Member]:
        """The commit's reply may have been lost, or one command spoilt it for all: each runs by itself with its own
        key, so what was committed is answered from the log and the guilty one is alone."""
        blocked: list[Member] = []
        pause = _FIRST_PAUSE
        for member in members:
            while self._ready([member]):
                try:
                    blocked += await self.commit(self._pool, [member], try_locks)
                except FAULTS as error:
                    refused = refusal(error, member.command)
                    if refused is not None:
                        _log.error(
                            "command refused by the store",
                            command=type(member.command).__name__,
                            error=type(error).__name__,
                            constraint=getattr(error, "constraint_name", None),
                            code=refused.code,
                        )
                        member.settle(refused)
                        break
                    left = max(0.0, member.deadline - self._clock.monotonic())
                    await asyncio.sleep(min(left, pause * random.uniform(0.5, 1.0)))
                    pause = min(pause * 2, _LONGEST_PAUSE)
                except Exception:  # noqa: BLE001 - it would break every process that this command is tried in
                    _log.exception("command broke", command=type(member.command).__name__)
                    member.settle(InternalFault())
                    break
                else:
                    pause = _FIRST_PAUSE
                    break
        return blocked

    def _refuse(self, members: Many[Member], error: BaseException) -> list[Member]:
        _log.error(
            "the database does not fit this process: is it migrated, is this the right role?",
            error=type(error).__name__,
            sqlstate=getattr(error, "sqlstate", None),
        )
        for member in members:
            member.settle(StoreUnavailable())
        return []

    def _ready(self, members: Many[Member]) -> list[Member]:
        now = self._clock.monotonic()
        for member in members:
            if member.deadline <= now:
                member.settle(StoreUnavailable())
        return [member for member in members if not member.over]
