"""Roll-ups: everything of an open item in one temporary frame, now and then, for whoever joins in mid-item."""

from collections.abc import Callable

from domain.events.item import ItemFrames
from domain.frames import LiveFrame, LiveItemSnapshot
from services.worker.executor.bounds import Bounds
from services.worker.executor.items import OpenItem

_BYTES_PER_SECOND = 256 * 1024
"""Each repeats the whole text, so of a long item they come less often: what goes out for one item is bounded."""


class RollUps:
    """Which items are open, and which have changed since their last roll-up. `show` publishes one in place of all
    earlier frames of its item."""

    def __init__(self, attempt: int, show: Callable[[str, LiveFrame], None], bounds: Bounds) -> None:
        self._attempt = attempt
        self._show = show
        self._seconds = bounds.rollup_seconds
        self._due: dict[str, tuple[float, OpenItem]] = {}
        self._open: dict[str, OpenItem] = {}

    def changed(self, item: OpenItem, now: float) -> None:
        """A delta was shown: the item's roll-up follows within the interval."""
        self._open[item.item_id] = item
        if item.item_id not in self._due:
            self._due[item.item_id] = (now + max(self._seconds, item.size / _BYTES_PER_SECOND), item)

    def completed(self, item: OpenItem) -> None:
        """The whole item is on its way to the log."""
        self._due.pop(item.item_id, None)
        self._open.pop(item.item_id, None)

    def tick(self, now: float) -> None:
        """Show those whose time has come."""
        for item in [item for at, item in self._due.values() if now >= at]:
            self._roll_up(item)

    def all(self) -> None:
        """Show all that have changed, since the loop may be blocked soon."""
        for _, item in list(self._due.values()):
            self._roll_up(item)

    def again(self) -> None:
        """Show all that are open, whether they have changed or not: earlier ones may be kept nowhere."""
        for item in list(self._open.values()):
            self._roll_up(item)

    def due(self) -> float | None:
        """When `tick` has something to show."""
        return min((at for at, _ in self._due.values()), default=None)

    def _roll_up(self, item: OpenItem) -> None:
        self._due.pop(item.item_id, None)
        self._show(
            item.item_id,
            LiveItemSnapshot(
                item_id=item.item_id,
                kind=item.kind,
                message_id=item.message_id,
                attempt=self._attempt,
                next_index=len(item.cuts),
                text="".join(item.pieces),
                frames=ItemFrames(runs=item.runs, cuts=item.cuts),
                scope=item.scope,
            ),
        )
