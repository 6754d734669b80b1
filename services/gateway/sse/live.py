"""Which temporary frames may still be shown, and what of the open items is shown to somebody who joins.

A frame is dropped when its item is completed, its turn is over or its attempt is an old one. A delta is shown when it
is the next of its item, for by then every joined viewer has what comes before it: by the deltas themselves, or by a
snapshot. Behind a hole nothing is shown until a roll-up closes it, the worker's own or one read from the broker.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from domain.events.turn import TERMINAL_TYPES
from services.gateway.sse.open_item import Known, OpenItem, Room

_REMEMBERED_TURNS = 32
_REMEMBERED_ITEMS = 1_024
_WAITING = 1_024

WATCHED = TERMINAL_TYPES | {"turn.started", "item.completed", "item.superseded", "tool_result.snapshot"}
"""Events that change what may be shown."""


UNREADABLE = (msgspec.MsgspecError, RecursionError)
"""What decoding raises on bytes that are none of ours; the second on JSON that is nested a thousand deep."""


class _FrameData(msgspec.Struct, frozen=True):
    item_id: str | None = None
    index: int | None = None
    next_index: int = 0
    attempt: int = 0


class Frame(msgspec.Struct, frozen=True):
    """As much of a temporary frame as decides about it."""

    type: str
    turn_id: str
    data: _FrameData


class Shown(NamedTuple):
    """A frame for those who joined at `tick` or before."""

    tick: int
    type: str
    frame: bytes


class _EventData(msgspec.Struct, frozen=True):
    item_id: str | None = None
    item_ids: list[str] = []
    attempt: int = 0
    final: bool = False


class _Event(msgspec.Struct, frozen=True):
    data: _EventData


decode_frame = msgspec.json.Decoder(Frame).decode
_decode_event = msgspec.json.Decoder(_Event).decode


class LiveFrames:
    """State of one session's open items, kept from what passed in order. Every part is bounded, by count or by the
    process's room for texts. `hole`: set when something is missing of an item; whoever sees to it resets it."""

    def __init__(self, room: Room) -> None:
        self.hole = False
        self._room = room
        self._open: dict[str, OpenItem] = {}
        self._progress: dict[str, tuple[str, bytes]] = {}
        self._done: OrderedDict[str, None] = OrderedDict()
        self._attempts: OrderedDict[str, int | Literal["over"]] = OrderedDict()

    @property
    def whole(self) -> bool:
        """Nothing is missing of what is known to be open."""
        return all(item.whole for item in self._open.values())

    def observe(self, type_: str, turn_id: str | None, envelope: bytes) -> None:
        """A committed event of a type in WATCHED, in its place."""
        if turn_id is None:
            return
        if type_ in TERMINAL_TYPES:
            self._remember(turn_id, "over")
            self._close_items(turn_id, None)
            return
        try:
            data = _decode_event(envelope).data
        except UNREADABLE:
            return
        if type_ == "turn.started":
            self._remember(turn_id, data.attempt)
            self._close_items(turn_id, data.attempt)
        elif type_ == "item.superseded":
            for item_id in data.item_ids:
                self._complete(item_id)
        elif data.item_id is not None and type_ == "item.completed":
            self._complete(data.item_id)
        elif data.item_id is not None and data.final:
            self._complete("progress:" + data.item_id)

    def admit(self, frame: Frame, raw: bytes, tick: int) -> list[Shown]:
        """What is to be shown now that this frame has come, in that order."""
        item_id = frame.data.item_id
        if item_id is None or self._passed(frame, item_id):
            return []
        match frame.type:
            case "tool.progress":
                self._keep_progress(item_id, frame.turn_id, raw)
                return [Shown(tick, frame.type, raw)]
            case "item.started":
                if item_id in self._open and self._open[item_id].next_index >= 0:
                    return []
                return self._know(frame, item_id, Known(raw, 0), tick)
            case "item.snapshot":
                return self._roll_up(frame, item_id, Known(raw, frame.data.next_index), tick)
            case "item.delta" if frame.data.index is not None:
                return self._delta(frame, item_id, frame.data.index, raw, tick)
            case _:
                return []

    def merge(self, found: Iterable[tuple[Frame, bytes]], tick: int) -> list[Shown]:
        """What somebody else kept of items that are open for sure. What that adds is shown as a snapshot."""
        had = {item_id: item.next_index for item_id, item in self._open.items()}
        progress = []
        for frame, raw in found:
            added = self.admit(frame, raw, tick)
            progress += [one for one in added if one.type == "tool.progress"]
        self.hole = False
        shown = []
        for item_id, item in self._open.items():
            if item.next_index > had.get(item_id, -1) and (snapshot := item.snapshot()) is not None:
                shown.append(Shown(tick, "item.snapshot", snapshot))
        return shown + progress

    def for_joiner(self) -> list[Shown]:
        """Everything open, as somebody needs it who has seen none of it."""
        snapshots = [item.snapshot() for item in self._open.values() if item.next_index >= 0 and item.kept]
        shown = [Shown(0, "item.snapshot", one) for one in snapshots if one is not None]
        return shown + [Shown(0, "tool.progress", raw) for _, raw in self._progress.values()]

    def forget(self) -> None:
        """Events went by that were not observed: open items cannot be trusted any more."""
        for item in self._open.values():
            item.drop()
        self._open.clear()
        self._progress.clear()

    def _passed(self, frame: Frame, item_id: str) -> bool:
        known = self._attempts.get(frame.turn_id)
        if known == "over" or (isinstance(known, int) and frame.data.attempt < known):
            return True
        return ("progress:" + item_id if frame.type == "tool.progress" else item_id) in self._done

    def _item(self, frame: Frame, item_id: str) -> OpenItem:
        item = self._open.get(item_id)
        if item is None:
            if len(self._open) >= _REMEMBERED_ITEMS:
                self._open.pop(next(iter(self._open))).drop()
            item = self._open[item_id] = OpenItem(item_id, frame.turn_id, frame.data.attempt, self._room)
        return item

    def _know(self, frame: Frame, item_id: str, known: Known, tick: int) -> list[Shown]:
        item = self._item(frame, item_id)
        follow = item.know(known, tick)
        return [Shown(tick, frame.type, known.frame), *(Shown(tick, "item.delta", delta) for delta in follow)]

    def _roll_up(self, frame: Frame, item_id: str, known: Known, tick: int) -> list[Shown]:
        """Shown where somebody lacks it; else it only takes the place of the deltas it stands for."""
        item = self._open.get(item_id)
        if item is None or known.next > item.next_index:
            return self._know(frame, item_id, known, tick)
        if known.next == item.next_index:
            lacked = item.since is not None
            item.know(known, tick)
            if lacked:
                return [Shown(tick, frame.type, known.frame)]
        return []

    def _delta(self, frame: Frame, item_id: str, index: int, raw: bytes, tick: int) -> list[Shown]:
        item = self._item(frame, item_id)
        if index == item.next_index:
            seen = tick if item.since is None else min(tick, item.since)
            return [Shown(seen, frame.type, delta) for delta in (raw, *item.append(raw, tick))]
        if index > item.next_index:
            self.hole = self.hole or item.whole or not item.waiting
            item.hold(index, raw, _WAITING)
        return []

    def _keep_progress(self, item_id: str, turn_id: str, raw: bytes) -> None:
        self._progress.pop(item_id, None)
        self._progress[item_id] = (turn_id, raw)
        if len(self._progress) > _REMEMBERED_TURNS:
            del self._progress[next(iter(self._progress))]

    def _complete(self, item_id: str) -> None:
        item = self._open.pop(item_id, None)
        if item is not None:
            item.drop()
        self._progress.pop(item_id.removeprefix("progress:"), None)
        self._done[item_id] = None
        if len(self._done) > _REMEMBERED_ITEMS:
            self._done.popitem(last=False)

    def _close_items(self, turn_id: str, below: int | None) -> None:
        for item_id, item in list(self._open.items()):
            if item.turn_id == turn_id and (below is None or item.attempt < below):
                self._open.pop(item_id).drop()
        self._progress = {i: kept for i, kept in self._progress.items() if kept[0] != turn_id}

    def _remember(self, turn_id: str, attempt: 'int | Literal["over"]') -> None:
        if self._attempts.get(turn_id) != "over":
            self._attempts[turn_id] = attempt
            self._attempts.move_to_end(turn_id)
        if len(self._attempts) > _REMEMBERED_TURNS:
            self._attempts.popitem(last=False)
