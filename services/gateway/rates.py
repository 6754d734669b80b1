"""How many turns one user may submit: a token bucket a user, in this process.

It bounds what a runaway client costs, so it need not be exact across gateways: N of them allow N times as much. How
many turns of a user may be open at once is the store's to say, exactly (domain/decisions).
"""

from domain.clock import Clock
from domain.errors import Rejection
from infra.postgres.registrations import Owner

_MAX_USERS = 10_000


class RateLimited(Rejection):
    """`retry_after`: whole seconds until the next one is allowed."""

    code = "rate_limited"
    sentence = "This user has submitted too many turns; {limit} a minute are allowed."


class Rates:
    """A full bucket holds one minute's worth."""

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._limit = per_minute
        self._clock = clock
        self._buckets: dict[Owner, tuple[float, float]] = {}

    def take(self, owner: Owner) -> None:
        """Count one. Raises RateLimited."""
        now = self._clock.monotonic()
        left = self._left(owner, now)
        if left < 1:
            self._keep(owner, left, now)
            raise RateLimited(limit=self._limit, retry_after=int((1 - left) * 60 / self._limit) + 1)
        self._keep(owner, left - 1, now)

    def give_back(self, owner: Owner) -> None:
        """What was counted began no turn."""
        now = self._clock.monotonic()
        self._keep(owner, min(float(self._limit), self._left(owner, now) + 1), now)

    def _left(self, owner: Owner, now: float) -> float:
        left, at = self._buckets.pop(owner, (float(self._limit), now))
        return min(float(self._limit), left + (now - at) * self._limit / 60)

    def _keep(self, owner: Owner, left: float, now: float) -> None:
        # Put back at the end: the first in the dict is who has been silent for longest.
        self._buckets[owner] = (left, now)
        if len(self._buckets) > _MAX_USERS:
            del self._buckets[next(iter(self._buckets))]
