"""Which temporary frames may still be shown, and to whom.

A frame is dropped when its item is completed, its turn is over or its attempt is an old one. A delta is shown only to
those who have seen its item from the start without a hole; everybody else waits for `item.completed`, which holds the
whole text. (Joining in mid-item by snapshot will register the item here with the tick of the snapshot.)"""

from collections import OrderedDict
from typing import Literal

import msgspec

from domain.events.turn import TERMINAL_TYPES

_REMEMBERED_TURNS = 32
_REMEMBERED_ITEMS = 1_024

ALWAYS = 0
"""Tick of what needs no earlier frame: every viewer may have it."""

WATCHED = TERMINAL_TYPES | {"turn.started", "item.completed", "item.superseded", "tool_result.snapshot"}
"""Events that change what may be shown."""


class _FrameData(msgspec.Struct, frozen=True):
    item_id: str | None = None
    index: int | None = None
    attempt: int = 0


class Frame(msgspec.Struct, frozen=True):
    """As much of a temporary frame as decides about it."""

    type: str
    turn_id: str
    data: _FrameData


class _EventData(msgspec.Struct, frozen=True):
    item_id: str | None = None
    item_ids: list[str] = []
    attempt: int = 0
    final: bool = False


class _Event(msgspec.Struct, frozen=True):
    data: _EventData


class _Item(msgspec.Struct):
    turn_id: str
    attempt: int
    tick: int
    next_index: int = 0


decode_frame = msgspec.json.Decoder(Frame).decode
_decode_event = msgspec.json.Decoder(_Event).decode


class LiveFrames:
    """State of one session's open items, kept from what passed in order. Every part is bounded by count."""

    def __init__(self) -> None:
        self._open: dict[str, _Item] = {}
        self._done: OrderedDict[str, None] = OrderedDict()
        self._attempts: OrderedDict[str, int | Literal["over"]] = OrderedDict()

    def observe(self, type_: str, turn_id: str | None, envelope: bytes) -> None:
        """A committed event of a type in WATCHED, in its place."""
        if turn_id is None:
            return
        if type_ in TERMINAL_TYPES:
            self._remember(turn_id, "over")
            self._close_items(turn_id, None)
            return
        data = _decode_event(envelope).data
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

    def admit(self, frame: Frame, tick: int) -> int | None:
        """The tick from which on a viewer must have been there to be shown the frame, or None: nobody is."""
        item_id, known = frame.data.item_id, self._attempts.get(frame.turn_id)
        if known == "over" or (isinstance(known, int) and frame.data.attempt < known):
            return None
        if item_id is None:
            return ALWAYS
        if frame.type == "tool.progress":
            return None if "progress:" + item_id in self._done else ALWAYS
        if item_id in self._done:
            return None
        if frame.type == "item.started":
            if item_id in self._open:
                return None
            if len(self._open) >= _REMEMBERED_ITEMS:
                del self._open[next(iter(self._open))]
            self._open[item_id] = _Item(frame.turn_id, frame.data.attempt, tick)
            return ALWAYS
        if frame.type == "item.delta":
            return self._delta(item_id, frame.data.index)
        return None if frame.type == "item.snapshot" else ALWAYS

    def forget(self) -> None:
        """Events went by that were not observed: open items cannot be trusted any more."""
        self._open.clear()

    def _delta(self, item_id: str, index: int | None) -> int | None:
        item = self._open.get(item_id)
        if item is None or index is None or index < item.next_index:
            return None
        if index > item.next_index:
            del self._open[item_id]
            return None
        item.next_index += 1
        return item.tick

    def _complete(self, item_id: str) -> None:
        self._open.pop(item_id, None)
        self._done[item_id] = None
        if len(self._done) > _REMEMBERED_ITEMS:
            self._done.popitem(last=False)

    def _close_items(self, turn_id: str, below: int | None) -> None:
        for item_id, item in list(self._open.items()):
            if item.turn_id == turn_id and (below is None or item.attempt < below):
                del self._open[item_id]

    def _remember(self, turn_id: str, attempt: 'int | Literal["over"]') -> None:
        if self._attempts.get(turn_id) != "over":
            self._attempts[turn_id] = attempt
            self._attempts.move_to_end(turn_id)
        if len(self._attempts) > _REMEMBERED_TURNS:
            self._attempts.popitem(last=False)
