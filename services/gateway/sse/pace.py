"""How often something is asked that many want to know: at once when it is rare, together when it is not."""

import asyncio


class Pace:
    """`burst` steps at once, then so many `a_second`. For one who steps at a time."""

    def __init__(self, burst: int, a_second: float) -> None:
        self._burst = burst
        self._a_second = a_second
        self._left = float(burst)
        self._at = 0.0

    async def step(self) -> None:
        """Returns when it is time, in a later loop step."""
        await asyncio.sleep(0)
        if self._take() < 0:
            await asyncio.sleep(-self._left / self._a_second)

    def _take(self) -> float:
        now = asyncio.get_running_loop().time()
        self._left = min(self._burst, self._left + (now - self._at) * self._a_second) - 1.0
        self._at = now
        return self._left
