"""Keeps the children of `turnlog up` running and ends them in order."""

import asyncio
from collections.abc import Sequence
from typing import TextIO

from services.cli.child import Child, ChildSpec, Log

# Gateways go first, so that nobody is accepted whom nobody serves; workers still need the database and the broker,
# which the caller stops last; agents go after the gateways, whose last readers they feed.
_STOP_ORDER = (("gateway",), ("worker",), ("agent", "projector"))
_COLOURS = {"gateway": 36, "agent": 33, "worker": 32, "projector": 35, "up": 34}


class Supervisor:
    """Runs the children of one installation."""

    def __init__(self, specs: Sequence[ChildSpec], log: Log) -> None:
        self.children = [Child(spec, log) for spec in specs]

    async def run(self, stop: asyncio.Event, *, patience: float) -> Child | None:
        """Until `stop` is set, or until a child is broken from the start: that one is returned.

        Either way all children have ended when this returns; each had `patience` seconds.
        """
        async with asyncio.TaskGroup() as group:
            for child in self.children:
                group.create_task(child.run(), name=child.spec.name)
            try:
                broken = await self._until(stop)
            finally:
                for roles in _STOP_ORDER:
                    leaving = [child.stop(patience) for child in self.children if child.spec.role in roles]
                    await asyncio.gather(*leaving)
        return broken

    def kill(self) -> None:
        """SIGKILL to all, for whoever presses Ctrl-C twice."""
        for child in self.children:
            child.kill()

    async def _until(self, stop: asyncio.Event) -> Child | None:
        waits = {asyncio.create_task(child.broken.wait()): child for child in self.children}
        stopped = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait({stopped, *waits}, return_when=asyncio.FIRST_COMPLETED)
            return next((waits[task] for task in done if task in waits), None)
        finally:
            for task in (stopped, *waits):
                task.cancel()


class PrefixedLog:
    """Writes `name | line`, in the role's colour on a terminal."""

    def __init__(self, out: TextIO, width: int) -> None:
        self._out = out
        self._width = width
        self._coloured = out.isatty()

    def __call__(self, name: str, line: str) -> None:
        prefix = f"{name:<{self._width}} |"
        if self._coloured:
            prefix = f"\x1b[{_COLOURS.get(name.partition('-')[0], 37)}m{prefix}\x1b[0m"
        self._out.write(f"{prefix} {line}\n")
        self._out.flush()
