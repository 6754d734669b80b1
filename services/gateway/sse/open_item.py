"""One open item as this gateway has seen it: what was shown of it, ready for whoever joins."""

from typing import Any, NamedTuple

import msgspec

from domain.events.item import ItemFrames, ItemKind
from domain.frames import LiveItemSnapshot, encode_live
from domain.parts import Scope


class Room:
    """Bytes that the open items of all sessions of a process may take together."""

    def __init__(self, limit: int) -> None:
        self.used = 0
        self._limit = limit

    def take(self, size: int) -> bool:
        """False, and nothing is taken, where there is no room."""
        if self.used + size > self._limit:
            return False
        self.used += size
        return True

    def give(self, size: int) -> None:
        self.used -= size


class _BaseData(msgspec.Struct):
    """Of `item.started` or `item.snapshot`."""

    kind: ItemKind
    attempt: int
    message_id: str | None = None
    frame: int = 0
    text: str = ""
    next_index: int = 0
    frames: ItemFrames | None = None
    scope: Scope | None = None


class _DeltaData(msgspec.Struct):
    text: str
    frame: int


class _Base(msgspec.Struct):
    session_id: str
    turn_id: str
    data: _BaseData


class _Delta(msgspec.Struct):
    data: _DeltaData


class Known(NamedTuple):
    """A frame with everything of the item before index `next`."""

    frame: bytes
    next: int


class OpenItem:
    """`next_index`: of the delta that is next, -1 while nothing is known. `waiting`: deltas behind a hole.
    `since`: the tick after which viewers have joined who lack the item, because its text was let go; else None."""

    __slots__ = ("_base", "_room", "_size", "_tail", "attempt", "item_id", "next_index", "since", "turn_id", "waiting")

    def __init__(self, item_id: str, turn_id: str, attempt: int, room: Room) -> None:
        self.item_id = item_id
        self.turn_id = turn_id
        self.attempt = attempt
        self.next_index = -1
        self.since: int | None = None
        self.waiting: dict[int, bytes] = {}
        self._base: bytes | None = None
        self._tail: list[bytes] = []
        self._room = room
        self._size = 0

    @property
    def whole(self) -> bool:
        """Everything up to `next_index` was seen, and nothing behind it."""
        return self.next_index >= 0 and not self.waiting

    @property
    def kept(self) -> bool:
        """It can be shown to somebody who joins."""
        return self._base is not None

    def know(self, known: Known, tick: int) -> list[bytes]:
        """From here on everything before `known.next` stands in that frame. Returns the deltas that waited and follow
        it now."""
        self.drop()
        self.next_index = known.next
        self.since = None
        if self._take(known.frame):
            self._base = known.frame
        else:
            self.since = tick
        self.waiting = {index: frame for index, frame in self.waiting.items() if index >= known.next}
        return self._follow(tick)

    def append(self, frame: bytes, tick: int) -> list[bytes]:
        """The delta that is next. Returns those that waited and follow it now."""
        self._append(frame, tick)
        return self._follow(tick) if self.waiting else []

    def _follow(self, tick: int) -> list[bytes]:
        follow = []
        while (frame := self.waiting.pop(self.next_index, None)) is not None:
            follow.append(frame)
            self._append(frame, tick)
        return follow

    def _append(self, frame: bytes, tick: int) -> None:
        self.next_index += 1
        if self._base is None:
            return
        if self._take(frame):
            self._tail.append(frame)
        else:
            self.drop()
            self.since = tick

    def hold(self, index: int, frame: bytes, most: int) -> None:
        """A delta behind a hole; too many are let go, since they come again with the next roll-up."""
        if len(self.waiting) >= most:
            self.waiting.clear()
        self.waiting[index] = frame

    def snapshot(self) -> bytes | None:
        """All of it in one `item.snapshot`, if it is kept. Made once for all who join before the next delta."""
        if self._base is not None and (self._tail or b'"type":"item.started"' in self._base[:256]):
            try:
                made = _joined(self.item_id, self._base, self._tail)
            except (msgspec.MsgspecError, RecursionError):
                # Nothing of ours looks like that; who joins waits for the completion.
                self.drop()
                return None
            self.drop()
            self._size = len(made)
            self._room.used += len(made)
            self._base = made
        return self._base

    def drop(self) -> None:
        """Keep nothing of its text."""
        self._room.give(self._size)
        self._size = 0
        self._base = None
        self._tail = []

    def _take(self, frame: bytes) -> bool:
        if not self._room.take(len(frame)):
            return False
        self._size += len(frame)
        return True


_decode_base = msgspec.json.Decoder(_Base).decode
_decode_delta = msgspec.json.Decoder(_Delta).decode


def _joined(item_id: str, base: bytes, tail: list[bytes]) -> bytes:
    said = _decode_base(base)
    data = said.data
    frames = data.frames or ItemFrames(runs=[(data.frame, 1)], cuts=[])
    texts, runs, cuts = [data.text], [list(run) for run in frames.runs], list(frames.cuts)
    for frame in tail:
        delta = _decode_delta(frame).data
        texts.append(delta.text)
        cuts.append(len(delta.text))
        if runs and sum(runs[-1]) == delta.frame:
            runs[-1][1] += 1
        else:
            runs.append([delta.frame, 1])
    fields: dict[str, Any] = {"kind": data.kind, "message_id": data.message_id, "scope": data.scope}
    snapshot = LiveItemSnapshot(
        item_id=item_id,
        attempt=data.attempt,
        next_index=data.next_index + len(tail),
        text="".join(texts),
        frames=ItemFrames(runs=[(first, count) for first, count in runs], cuts=cuts),
        **fields,
    )
    return encode_live(said.session_id, said.turn_id, snapshot)
