"""From the runtime's frames to the recorder, and what the runtime says of its end."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import msgspec

from domain import frames
from domain.clock import Monotonic
from domain.runtime import Execution, Runtime
from domain.texts import made_safe
from services.worker.executor.asking import askable
from services.worker.executor.outcome import Outcome, completed
from services.worker.executor.recorder import Recorder
from services.worker.executor.writer import Writer

_BREATH_SECONDS = 0.01
"""A runtime that never awaits is made to: others share the loop."""

_PIECE = 64 * 1024
"""Code points of a delta that are recorded at a time, so that a huge one is bounded by the store's pace too."""


class Intake:
    """Takes frames no faster than they are written, and hands on what the recorder has kept back for a while when that
    is due. `said`: the runtime's last word on how it ended, None where it has not said so."""

    def __init__(
        self,
        recorder: Recorder,
        writer: Writer,
        *,
        clock: Monotonic,
        new_id: Callable[[], str],
        touched: Callable[[], None],
    ) -> None:
        """`touched`: called for each frame, since a turn without any for long is given up."""
        self.said: Outcome | None = None
        self._recorder = recorder
        self._writer = writer
        self._clock = clock
        self._new_id = new_id
        self._touched = touched
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    async def all_of(self, runtime: Runtime, execution: Execution) -> None:
        """Pull frames until the runtime has no more. Raises what it raises."""
        breathed = self._clock.monotonic()
        async with aclosing(runtime.execute(execution)) as stream:
            async for frame in stream:
                await self._writer.room()
                now = self._clock.monotonic()
                if now - breathed > _BREATH_SECONDS:
                    await asyncio.sleep(0)
                    breathed = now
                match frame:
                    case frames.Completed():
                        self.said = completed(frame.output and made_safe(frame.output))
                    case frames.Paused():
                        self.said = Outcome(kind="paused", requirements=askable(frame.requirements, self._new_id))
                    case frames.Stopped():
                        self.said = Outcome(kind="interrupted")
                    case frames.ItemDelta() if len(frame.text) > _PIECE:
                        for start in range(0, len(frame.text), _PIECE):
                            await self._writer.room()
                            piece = frame.text[start : start + _PIECE]
                            self._record(msgspec.structs.replace(frame, text=piece))
                    case _:
                        self._record(frame)

    def stop(self) -> None:
        """Nothing is handed on by time any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _record(self, frame: frames.RuntimeFrame) -> None:
        self._touched()
        self._recorder.take(frame, self._clock.monotonic())
        # Behind a started tool its body waits.
        self._writer.wake(urgent=isinstance(frame, frames.ToolStarted | frames.Together))
        self._arm()

    def _arm(self) -> None:
        due = self._recorder.due()
        if due is None or (self._timer is not None and self._timer_at <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        wait = max(0.0, due - self._clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(wait, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._recorder.tick(self._clock.monotonic())
        self._writer.wake()
        self._arm()
