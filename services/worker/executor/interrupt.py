"""The wish to stop one execution."""

from collections.abc import Callable


class StopWish:
    """Implements `domain.runtime.Interrupt`; used in the event loop only."""

    def __init__(self) -> None:
        self._requested = False
        self._stops: list[Callable[[], None]] = []

    @property
    def requested(self) -> bool:
        return self._requested

    def on_request(self, stop: Callable[[], None]) -> None:
        if self._requested:
            stop()
        else:
            self._stops.append(stop)

    def request(self) -> None:
        """Asking twice is one wish."""
        if self._requested:
            return
        self._requested = True
        for stop in self._stops:
            stop()
        self._stops.clear()
