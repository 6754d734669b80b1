"""The operating system's clock and randomness: what `domain.clock` asks for, in a real process."""

import os
import time

from uuid_utils import uuid7

from domain.ids import Micros


class SystemClock:
    """Implements `domain.clock.Clock`."""

    def now(self) -> Micros:
        return Micros(time.time_ns() // 1000)

    def monotonic(self) -> float:
        return time.monotonic()


class SystemIds:
    """Implements `domain.clock.IdSource`. Ids of one process ascend, also those made within one millisecond."""

    def uuid7(self) -> str:
        return str(uuid7())

    def salt(self) -> bytes:
        return os.urandom(16)
