"""Waiting for a condition, never for a time; and judging times on machines that others use as well.

What must happen is waited for with `PATIENCE`. Where a requirement says how quickly, a `Stopwatch` judges that.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 45.0
"""Seconds until what has not happened is taken for what will not happen: far more than a busy machine needs."""

_PRESSURE = Path("/proc/pressure/cpu")
_MOST = 0.75


class Stopwatch:
    """Seconds since it was made, as a machine with nothing else to do would have counted them: while somebody waits for
    a CPU (the kernel counts that, Linux 4.20 and newer) time stands still, but for a quarter. So it is a plain clock on
    an idle machine, and on a busy one a bound becomes up to four times as wide, and never wider."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._stalled = _stalled()

    def __call__(self) -> float:
        return (time.monotonic() - self._begun) * self.share()

    def share(self) -> float:
        """The part of the time so far that counts, between a quarter and 1."""
        wall = max(time.monotonic() - self._begun, 1e-6)
        return 1.0 - min((_stalled() - self._stalled) / wall, _MOST)


def _stalled() -> float:
    """Seconds since the start of the machine in which a task waited for a CPU; 0 where the kernel does not tell."""
    try:
        return int(_PRESSURE.read_text().partition("total=")[2].split()[0]) / 1e6
    except (OSError, IndexError, ValueError):
        return 0.0


async def eventually(
    condition: Callable[[], Awaitable[T | None]], what: str, *, timeout: float = PATIENCE, pause: float = 0.02
) -> T:
    """Ask again and again until the answer is true, and return it; else fail and say what was waited for."""
    last: T | None = None
    try:
        async with asyncio.timeout(timeout):
            while True:
                last = await condition()
                if last:
                    return last
                await asyncio.sleep(pause)
    except TimeoutError:
        raise AssertionError(f"not within {timeout} s: {what} (last seen: {last!r})") from None
