"""`expand(events) -> frames`: the exact frame stream of a turn, given back from what was committed.

A frame is either an event that has a frame number or a temporary frame of a completed item. What a dead attempt had not
committed, and progress, are not in the log and not given back.
"""

from collections.abc import Iterable, Iterator

import msgspec

from domain.events import turn as turn_events
from domain.events.base import Event, ExecutorEvent
from domain.events.envelope import StoredEvent, envelope_of
from domain.events.item import ItemCompleted
from domain.frames import LiveFrame, LiveItemDelta, LiveItemSnapshot, LiveItemStarted, encode_live
from domain.ids import FRAMES_PER_ATTEMPT, Sequence


class TurnFrame(msgspec.Struct, frozen=True, kw_only=True):
    """One frame of a turn. `wire` is byte for byte what viewers got live: the envelope of an event, the wire JSON of a
    temporary frame. `sequence` is None for temporary frames."""

    attempt: int
    frame: int
    type: str
    data: Event | LiveFrame
    wire: bytes
    sequence: Sequence | None = None


def expand(events: Iterable[StoredEvent]) -> list[TurnFrame]:
    """All frames of one turn in `(attempt, frame)` order. `events`: the turn's events in sequence. Events that take no
    number (`turn.queued`, answers, intents, hooks, the mark `superseded`) yield none; a terminal event from outside the
    executor takes the first number of the base after its attempt."""
    frames: list[TurnFrame] = []
    attempt = 0
    for stored in events:
        data = stored.event()
        if isinstance(data, turn_events.TurnStarted):
            attempt = data.attempt
            frames.append(_event(stored, data, attempt, data.frame_base))
        elif isinstance(data, ItemCompleted):
            frames.extend(_of_item(stored, data))
        elif isinstance(data, ExecutorEvent):
            frames.append(_event(stored, data, data.attempt, data.frame))
        elif isinstance(data, turn_events.TurnFailed | turn_events.TurnInterrupted) and data.frame is not None:
            frames.append(_event(stored, data, data.attempt or attempt, data.frame))
        elif isinstance(data, turn_events.TERMINAL):
            frames.append(_event(stored, data, attempt, (attempt + 1) * FRAMES_PER_ATTEMPT))
    frames.sort(key=lambda frame: (frame.attempt, frame.frame))
    return frames


def _event(stored: StoredEvent, data: Event, attempt: int, frame: int) -> TurnFrame:
    return TurnFrame(
        attempt=attempt,
        frame=frame,
        type=stored.type,
        data=data,
        wire=envelope_of(stored),
        sequence=stored.sequence,
    )


def _of_item(stored: StoredEvent, item: ItemCompleted) -> Iterator[TurnFrame]:
    """The start, the deltas and the completion of an item."""
    for number, frame in pieces(item):
        yield TurnFrame(
            attempt=item.attempt,
            frame=number,
            type=frame.type,
            data=frame,
            wire=encode_live(stored.session_id, stored.turn_id or "", frame),
        )
    yield _event(stored, item, item.attempt, item.frame)


def pieces(item: ItemCompleted | LiveItemSnapshot) -> Iterator[tuple[int, LiveFrame]]:
    """The start and the deltas of an item with their frame numbers, by its runs and cuts."""
    numbers = [first + offset for first, count in item.frames.runs for offset in range(count)]
    if not numbers:
        return
    start = LiveItemStarted(
        item_id=item.item_id,
        kind=item.kind,
        message_id=item.message_id,
        attempt=item.attempt,
        frame=numbers[0],
        scope=item.scope,
    )
    yield numbers[0], start
    text, place = item.text or "", 0
    for index, (number, length) in enumerate(zip(numbers[1:], item.frames.cuts, strict=False)):
        delta = LiveItemDelta(
            item_id=item.item_id,
            index=index,
            attempt=item.attempt,
            frame=number,
            text=text[place : place + length],
            scope=item.scope,
        )
        place += length
        yield number, delta
