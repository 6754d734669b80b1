"""Clock and id source as ports: the domain asks no operating system for the time or for randomness."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol

from domain.ids import Micros

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Monotonic(Protocol):
    """What measures durations in one process: all the time that the pipeline and workers get. What they judge and store
    goes by the store's clock, since hosts' clocks may be hours apart."""

    def monotonic(self) -> float:
        """Seconds that never go back; comparable within one process only."""
        ...


class Clock(Monotonic, Protocol):
    """Source of time of one process."""

    def now(self) -> Micros:
        """Wall clock in microseconds since the epoch, UTC."""
        ...


class IdSource(Protocol):
    """Source of ids and salts of one process."""

    def uuid7(self) -> str:
        """A fresh UUIDv7 in canonical lower-case text."""
        ...

    def salt(self) -> bytes:
        """16 fresh random bytes."""
        ...


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")


def rfc3339(instant: Micros) -> str:
    """RFC 3339 in UTC with exactly six digits of a second, e.g. `2026-01-31T12:00:00.000001Z`."""
    seconds, micros = divmod(instant, 1_000_000)
    return f"{_second(seconds)}.{micros:06d}Z"


def parse_rfc3339(text: str) -> Micros:
    """Inverse of `rfc3339`; other offsets are converted. Raises ValueError on anything else."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time without an offset")
    return from_datetime(moment)


def to_datetime(instant: Micros) -> datetime:
    """The same instant as an aware datetime, for database parameters."""
    return _EPOCH + timedelta(microseconds=instant)


def from_datetime(moment: datetime) -> Micros:
    """Inverse of `to_datetime`."""
    delta = moment - _EPOCH
    return Micros((delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds)
