"""The lease as an execution sees it."""

from typing import Protocol


class Lease(Protocol):
    """How long this process may believe that its claims are its own. Times are on the process's monotonic clock."""

    def deadline(self) -> float:
        """Until then nobody takes a turn over."""
        ...

    async def ahead(self) -> None:
        """Returns once the deadline lies ahead: at once, or after the next heartbeat that got through."""
        ...

    def touched(self, turn_id: str) -> None:
        """The turn made a frame: the next heartbeat says so."""
        ...
