"""Hands frames from a task of the runtime's own to the executor, one at a time.

Agent frameworks keep context variables and cancel scopes in the task that entered them, so their code runs in one task
from beginning to end and never inside a generator that somebody else may close."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from domain.frames import RuntimeFrame
from domain.runtime import RuntimeFailed

_GOODBYE_SECONDS = 2.0
"""Less than a draining worker has for handing turns back: users' code must not make a deploy look like a death."""


class Outlet:
    """A rendezvous: `emit` returns when the executor has recorded the frame, so a fast runtime waits."""

    def __init__(self) -> None:
        self._frames: asyncio.Queue[tuple[RuntimeFrame, asyncio.Future[None]] | None] = asyncio.Queue(1)
        self._closed = False

    async def emit(self, frame: RuntimeFrame) -> None:
        """Frames of several tasks are taken one by one. Once nobody takes frames any more, whoever emits is
        cancelled."""
        if self._closed:
            raise asyncio.CancelledError
        recorded = asyncio.get_running_loop().create_future()
        await self._frames.put((frame, recorded))
        await recorded

    async def stream(self, drive: Callable[["Outlet"], Awaitable[None]]) -> AsyncGenerator[RuntimeFrame, None]:
        """The frames that `drive` emits, until it ends; raises what it raises. Closing the stream cancels it."""
        driver = asyncio.create_task(self._run(drive))
        try:
            while (taken := await self._frames.get()) is not None:
                frame, recorded = taken
                yield frame
                if not recorded.done():  # its emitter may have been cancelled meanwhile
                    recorded.set_result(None)
            await asyncio.wait([driver])
            if driver.cancelled():
                raise RuntimeFailed("agent_error", "The agent cancelled itself.")
            driver.result()
        finally:
            self._closed = True
            driver.cancel()
            # Code that holds on to a cancellation is left behind: the claim is what protects the log from it.
            await asyncio.wait([driver], timeout=_GOODBYE_SECONDS)

    async def _run(self, drive: Callable[["Outlet"], Awaitable[None]]) -> None:
        try:
            await drive(self)
        except SystemExit as error:
            raise RuntimeFailed("agent_error", "The agent called sys.exit().") from error
        finally:
            if not self._closed:
                await self._frames.put(None)
