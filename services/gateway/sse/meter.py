"""What delivery counts of itself; the process's metrics read it."""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Literal

Means = Literal["wait", "page", "pull", "roll_up", "open_items"]
"""How a gap was closed: by waiting a moment for publishers that had swapped; by one replay page for all; by viewers
who pulled what they lacked; of an open item by the worker's next roll-up, or by what the broker keeps."""

_CREATED = b'"created_at":"'
_LENGTH = len("2026-01-01T00:00:00.000000Z")


class Meter:
    """`pages`: replay pages read; `healed`: gaps by the means that closed them; `sent`: told of each committed event's
    age in seconds when it is handed to viewers, by the clocks of two machines."""

    def __init__(self) -> None:
        self.pages = 0
        self.healed: dict[Means, int] = dict.fromkeys(("wait", "page", "pull", "roll_up", "open_items"), 0)
        self.sent: Callable[[float], None] | None = None

    def event(self, envelope: bytes) -> None:
        """One that goes to viewers now."""
        if self.sent is None:
            return
        at = envelope.find(_CREATED) + len(_CREATED)
        try:
            created = datetime.fromisoformat(envelope[at : at + _LENGTH].decode("ascii")).timestamp()
        except ValueError:
            return  # a later version's time
        self.sent(max(0.0, time.time() - created))
