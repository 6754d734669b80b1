"""A lane: the commands of some of the sessions, one group after the other.

While one group commits the next one gathers, so groups grow with the load and an idle lane answers at once.
"""

import asyncio
from collections import deque

from domain.errors import StoreUnavailable
from infra.pipeline.member import Member
from infra.pipeline.runner import Runner
from infra.pipeline.waiting import WaitingRoom


class Lane:
    """Owned by one task that runs `serve`. A session always goes through the same lane, so its commands keep their
    order."""

    def __init__(self, runner: Runner, waiting: WaitingRoom, size: int, bound: int) -> None:
        self._runner = runner
        self._waiting = waiting
        self._size = size
        self._bound = bound
        self._queue: deque[Member] = deque()
        self._arrived = asyncio.Event()
        self._closing = False

    def put(self, member: Member) -> None:
        """Queue a command. Raises StoreUnavailable at once where the lane is full or closing."""
        if self._closing or len(self._queue) >= self._bound:
            raise StoreUnavailable()
        self._queue.append(member)
        self._arrived.set()

    def close(self) -> None:
        """Accept nothing more; `serve` returns when what is queued has run."""
        self._closing = True
        self._arrived.set()

    async def serve(self) -> None:
        """Run groups until closed. However it ends, nobody is left waiting for an answer."""
        taken: list[Member] = []
        try:
            while True:
                while not self._queue:
                    if self._closing:
                        return
                    self._arrived.clear()
                    await self._arrived.wait()
                taken = [self._queue.popleft() for _ in range(min(self._size, len(self._queue)))]
                for member in await self._runner.run(self._waiting.divert(taken)):
                    self._waiting.add(member)
        except BaseException:
            self._closing = True
            for member in (*taken, *self._queue):
                member.settle(StoreUnavailable())
            raise
