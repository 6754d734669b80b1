"""The command pipeline on the memory store: the same decisions and the same bookkeeping, without a database."""

import asyncio

from domain.clock import Clock, IdSource
from domain.commands import Command
from domain.errors import StoreUnavailable
from domain.ports import Notifier, Outcome
from infra.memory.store import MemoryEventStore
from infra.pipeline.announce import announce
from infra.pipeline.batch import Birth, SessionBatch
from infra.pipeline.member import Member
from infra.pipeline.settings import PipelineSettings


class MemoryPipeline:
    """Implements `domain.ports.CommandPipeline`."""

    def __init__(
        self,
        store: MemoryEventStore,
        *,
        notifier: Notifier,
        clock: Clock,
        ids: IdSource,
        settings: PipelineSettings | None = None,
    ) -> None:
        self._store = store
        self._notifier = notifier
        self._clock = clock
        self._ids = ids
        self._settings = settings or PipelineSettings()

    async def execute(self, command: Command, *, deadline: float | None = None) -> Outcome:
        """See `CommandPipeline`."""
        if deadline is not None and deadline <= self._clock.monotonic():
            raise StoreUnavailable()
        member = Member(command, deadline or float("inf"), asyncio.get_running_loop().create_future())
        batch = SessionBatch(
            self._store.load(command.session_id, self._clock.now()),
            ids=self._ids,
            limits=self._settings.limits,
            payload_bytes=self._settings.payload_bytes,
            birth=Birth(),
        )
        (answer,) = batch.run([member])
        if isinstance(answer, Exception):
            raise answer
        self._store.commit(batch)
        announce(self._notifier, [batch], self._settings.wake_pool)
        return answer
