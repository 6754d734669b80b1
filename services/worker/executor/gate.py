"""The gate inside every tool call."""

import asyncio
from collections.abc import Iterable

from domain.events.envelope import Draft
from domain.events.item import ToolStarted
from services.worker.executor.lease import Lease


class CommitGate:
    """Opens for an item when its `tool.started` is committed. Implements `domain.runtime.Gate`."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._started: dict[str, asyncio.Event] = {}
        self._closed = False

    async def open(self, item_id: str) -> None:
        await self._of(item_id).wait()
        # The commit checked the fence. What has passed since is seen on the clock only: a process that was frozen in
        # between may hold a claim that is not its own any more.
        await self._lease.ahead()
        while self._closed:
            # The heartbeat that brought the lease back also said that this turn is somebody else's.
            await asyncio.Event().wait()

    def close(self) -> None:
        """The claim is lost: nothing passes any more."""
        self._closed = True

    def committed(self, drafts: Iterable[Draft]) -> None:
        """These are in the log."""
        for draft in drafts:
            if isinstance(draft.data, ToolStarted):
                self._of(draft.data.item_id).set()

    def _of(self, item_id: str) -> asyncio.Event:
        return self._started.setdefault(item_id, asyncio.Event())
