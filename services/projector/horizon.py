"""How long the feed has been held back: by watching the oldest open transaction, since its own start is nothing that a
service role may see of another role's."""

from collections.abc import Callable


class HorizonAge:
    """Any open transaction of the server that has written, also of other databases, holds the feed where it is. The age
    is that of the observation: at most one look too small."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: a monotonic clock, in seconds."""
        self._now = now
        self._oldest: int | None = None
        self._since = 0.0

    def look(self, oldest: int, following: int) -> float:
        """Seconds for which the same transaction has been the oldest one; 0 where it holds nothing back."""
        if oldest >= following:
            self._oldest = None
            return 0.0
        if oldest != self._oldest:
            self._oldest, self._since = oldest, self._now()
        return self._now() - self._since
