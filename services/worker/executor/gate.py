"""The gate inside every tool call."""

import asyncio
from collections.abc import Iterable

from domain.events.envelope import Draft
from domain.events.item import CheckpointReached, ToolStarted
from services.worker.executor.lease import Lease


class CommitGate:
    """Opens for an item when its `tool.started` is committed. Implements `domain.runtime.Gate`."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._started: dict[str, asyncio.Event] = {}
        self._checkpoints = 0
        self._more: asyncio.Event | None = None
        self._closed = False

    async def open(self, item_id: str) -> None:
        await self._of(item_id).wait()
        await self._passed()

    async def _passed(self) -> None:
        # The commit checked the fence. What has passed since is seen on the clock only: a process that was frozen in
        # between may hold a claim that is not its own any more.
        await self._lease.ahead()
        while self._closed:
            # The heartbeat that brought the lease back also said that this turn is somebody else's.
            await asyncio.Event().wait()

    async def kept(self, checkpoints: int) -> None:
        while self._checkpoints < checkpoints:
            more = self._more = self._more or asyncio.Event()
            await more.wait()
        await self._passed()

    def close(self) -> None:
        """The claim is lost: nothing passes any more."""
        self._closed = True

    def committed(self, drafts: Iterable[Draft]) -> None:
        """These are in the log."""
        for draft in drafts:
            if isinstance(draft.data, ToolStarted):
                self._of(draft.data.item_id).set()
            elif isinstance(draft.data, CheckpointReached):
                self._checkpoints += 1
                if self._more is not None:
                    self._more.set()
                    self._more = None

    def _of(self, item_id: str) -> asyncio.Event:
        return self._started.setdefault(item_id, asyncio.Event())
