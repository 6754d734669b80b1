"""Open text and reasoning items: deltas grouped in time, cut points, and the split of what grows too long."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from domain.events.item import ItemCompleted, ItemFrames
from domain.frames import LiveFrame, LiveItemDelta, LiveItemStarted
from domain.parts import Scope
from domain.texts import made_safe
from services.worker.executor.bounds import Bounds

_CUT_BYTES = 8
"""What a delta adds to the payload beside its text: its cut, and its share of a run."""

_encode = msgspec.json.Encoder().encode


def json_size(text: str) -> int:
    """Bytes of the text inside a JSON string."""
    return len(_encode(text)) - 2


def fitting(text: str, room: int) -> int:
    """How many of the first code points fit into `room` bytes of JSON."""
    if json_size(text[: room + 1]) <= room:
        return min(len(text), room + 1)
    low, high = 0, min(len(text), room)
    while low < high:
        middle = (low + high + 1) // 2
        if json_size(text[:middle]) <= room:
            low = middle
        else:
            high = middle - 1
    return low


def _ignored(*_: object) -> None: ...


@dataclass(slots=True)
class OpenItem:
    """One stored item in the making."""

    item_id: str
    kind: Literal["text", "reasoning"]
    message_id: str | None
    scope: Scope | None
    continues: str | None
    pieces: list[str] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    runs: list[tuple[int, int]] = field(default_factory=list)
    size: int = 0

    def took(self, number: int) -> None:
        """The item used that frame number."""
        if self.runs and sum(self.runs[-1]) == number:
            first, count = self.runs[-1]
            self.runs[-1] = (first, count + 1)
        else:
            self.runs.append((number, 1))
            self.size += 2 * _CUT_BYTES


@dataclass(slots=True)
class Source:
    """What the runtime calls one item: the part of it that is open now, and text that is not shown yet."""

    item_id: str
    kind: Literal["text", "reasoning"]
    scope: Scope | None
    part: OpenItem | None = None
    waiting: list[str] = field(default_factory=list)
    shown_at: float | None = None


class Items:
    """All open items of an attempt. `number` gives the next frame number; `show` publishes a temporary frame; `write`
    drafts an event; `message_of` gives the id of the message that text of a scope belongs to; `changed` and `completed`
    are told of an item's growth and end."""

    def __init__(
        self,
        attempt: int,
        *,
        number: Callable[[], int],
        show: Callable[[str, LiveFrame], None],
        write: Callable[[ItemCompleted], None],
        message_of: Callable[[Scope | None], str],
        new_id: Callable[[], str],
        bounds: Bounds,
        changed: Callable[[OpenItem, float], None] = _ignored,
        completed: Callable[[OpenItem], None] = _ignored,
    ) -> None:
        self._attempt = attempt
        self._number = number
        self._show = show
        self._write = write
        self._message_of = message_of
        self._new_id = new_id
        self._changed = changed
        self._completed = completed
        self._item_bytes = bounds.item_bytes
        self._grouping = bounds.delta_seconds
        self._open: dict[str, Source] = {}

    def start(self, item_id: str, kind: Literal["text", "reasoning"], scope: Scope | None) -> None:
        """The item opens; viewers are told with its first text, so an item without any never was."""
        self._open[item_id] = Source(item_id, kind, scope)

    def add(self, item_id: str, text: str, now: float) -> None:
        """More text. The first is shown at once, what follows soon after is grouped."""
        if not text:
            return
        source = self._open[item_id]
        source.waiting.append(made_safe(text))
        if source.shown_at is None or now >= source.shown_at + self._grouping:
            self._flush(source, now)

    def end(self, item_id: str, now: float, *, partial: bool = False) -> None:
        """The item is whole, or cut off."""
        source = self._open.pop(item_id)
        self._flush(source, now)
        if source.part is not None:
            self._complete(source.part, partial=partial)

    def end_all(self, now: float, *, partial: bool) -> None:
        """Nothing more comes."""
        for item_id in list(self._open):
            self.end(item_id, now, partial=partial)

    def tick(self, now: float) -> None:
        """Show what has waited long enough."""
        for source in self._open.values():
            if source.waiting and source.shown_at is not None and now >= source.shown_at + self._grouping:
                self._flush(source, now)

    def due(self) -> float | None:
        """When `tick` has something to show next."""
        return min(
            (s.shown_at + self._grouping for s in self._open.values() if s.waiting and s.shown_at is not None),
            default=None,
        )

    def _flush(self, source: Source, now: float) -> None:
        if not source.waiting:
            return
        text = "".join(source.waiting)
        source.waiting.clear()
        source.shown_at = now
        while text:
            part = source.part
            if part is None:
                part = source.part = self._begin(source, source.item_id, None)
            fits = fitting(text, self._item_bytes - part.size - _CUT_BYTES - 2 * _CUT_BYTES)
            if not part.cuts:
                fits = max(fits, 1)  # where nothing fits into an empty part, nothing ever would
            if fits:
                self._delta(part, text[:fits], now)
                text = text[fits:]
            if text:
                self._complete(part, partial=False)
                source.part = self._begin(source, self._new_id(), part.item_id)

    def _begin(self, source: Source, item_id: str, continues: str | None) -> OpenItem:
        message_id = self._message_of(source.scope) if source.kind == "text" else None
        part = OpenItem(item_id, source.kind, message_id, source.scope, continues)
        frame = self._number()
        part.took(frame)
        self._show(
            item_id,
            LiveItemStarted(
                item_id=item_id,
                kind=source.kind,
                message_id=message_id,
                attempt=self._attempt,
                frame=frame,
                scope=source.scope,
            ),
        )
        return part

    def _delta(self, part: OpenItem, text: str, now: float) -> None:
        frame = self._number()
        part.took(frame)
        self._show(
            part.item_id,
            LiveItemDelta(
                item_id=part.item_id,
                index=len(part.cuts),
                attempt=self._attempt,
                frame=frame,
                text=text,
                scope=part.scope,
            ),
        )
        part.pieces.append(text)
        part.cuts.append(len(text))
        part.size += json_size(text) + _CUT_BYTES
        self._changed(part, now)

    def _complete(self, part: OpenItem, *, partial: bool) -> None:
        self._completed(part)
        frame = self._number()
        part.took(frame)
        self._write(
            ItemCompleted(
                attempt=self._attempt,
                frame=frame,
                scope=part.scope,
                item_id=part.item_id,
                kind=part.kind,
                message_id=part.message_id,
                text="".join(part.pieces),
                partial=partial,
                continues=part.continues,
                frames=ItemFrames(runs=list(part.runs), cuts=list(part.cuts)),
            )
        )
