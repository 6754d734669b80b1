"""Time and ids that a test controls."""

from domain.ids import Micros


class ManualClock:
    """Implements `domain.clock.Clock`; stands still until it is advanced."""

    def __init__(self, now: int = 1_767_225_600_000_000) -> None:
        """`now`: microseconds since 1970; the default is the start of 2026."""
        self._now = now
        self._monotonic = 0.0

    def now(self) -> Micros:
        return Micros(self._now)

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass on both scales."""
        self._now += round(seconds * 1_000_000)
        self._monotonic += seconds

    def set_back(self, seconds: float) -> None:
        """What an operator or a time server may do to the wall clock; the other scale does not move."""
        self._now -= round(seconds * 1_000_000)


class CountingIds:
    """Implements `domain.clock.IdSource`: the same ids and salts in every run."""

    def __init__(self) -> None:
        self._count = 0

    def uuid7(self) -> str:
        self._count += 1
        return f"01900000-0000-7000-8000-{self._count:012x}"

    def salt(self) -> bytes:
        self._count += 1
        return self._count.to_bytes(16, "big")
