"""Progress of running tools: the newest of each call, shown at most once in an interval; never stored, takes no frame
number."""

from collections.abc import Callable

from domain.frames import LiveFrame, LiveToolProgress, ToolProgressed
from domain.texts import made_safe


class Progress:
    """Progress of the calls of an attempt. `show` publishes a temporary frame under the call's item."""

    def __init__(self, attempt: int, show: Callable[[str, LiveFrame], None], interval: float) -> None:
        self._attempt = attempt
        self._show = show
        self._interval = interval
        self._newest: dict[str, ToolProgressed] = {}
        self._next_at: dict[str, float] = {}
        self._ended: set[str] = set()

    def update(self, frame: ToolProgressed, now: float) -> None:
        """A newer state replaces one that is not shown yet."""
        self._newest[frame.item_id] = frame
        self.tick(now)

    def finished(self, item_id: str) -> None:
        """The call has its result: progress of it says nothing any more."""
        self._newest.pop(item_id, None)
        if self._next_at.pop(item_id, None) is not None:
            self._ended.add(item_id)

    def ended(self, item_id: str) -> bool:
        """Whether progress of a call that has its result was ever shown; tells it once."""
        shown = item_id in self._ended
        self._ended.discard(item_id)
        return shown

    def tick(self, now: float) -> None:
        """Show what may be shown."""
        for item_id in [i for i in self._newest if now >= self._next_at.get(i, now)]:
            frame = self._newest.pop(item_id)
            self._next_at[item_id] = now + self._interval
            self._show(
                item_id,
                LiveToolProgress(
                    tool_call_id=frame.tool_call_id,
                    item_id=item_id,
                    attempt=self._attempt,
                    text=None if frame.text is None else made_safe(frame.text[:2000]),
                    fraction=frame.fraction,
                    scope=frame.scope,
                ),
            )

    def due(self) -> float | None:
        """When `tick` has something to show."""
        return min((self._next_at.get(item_id, 0.0) for item_id in self._newest), default=None)
