"""Places in a turn: where its checkpoints lie, and from which of them one can fork.

One can fork after a batch of tools, when each of its calls has a result, and at the end. The checkpoint that is written
with the calls of a batch, before any of them starts, is there for recovery only, and so is that of a member's or a
step's run.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Many

import msgspec

from domain.errors import ForkOutOfRange
from domain.events import item
from domain.events.envelope import StoredEvent
from domain.ids import Sequence
from domain.turn import Turn


class CheckpointView(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint as the API shows it. `status`: of the turn there; `message_index`: messages of the runtime's
    transcript of this turn by then."""

    sequence: int
    message_index: int
    reason: str
    status: str
    is_latest: bool


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint between batches. `forkable`: a history may end there."""

    sequence: Sequence
    message_index: int
    reason: str
    forkable: bool


def places(events: Iterable[StoredEvent]) -> list[Place]:
    """The checkpoints of a turn, from its events in sequence, but for those inside a batch of tools."""
    found: list[Place] = []
    open_calls: set[str] = set()
    for stored in events:
        match stored.event():
            case item.ItemCompleted(kind="tool_call") as call:
                open_calls.add(call.item_id)
            case item.ToolResultSnapshot(final=True) as result:
                open_calls.discard(result.item_id)
            case item.CheckpointReached(scope=None) as reached if reached.reason != "tool_batch" or not open_calls:
                found.append(
                    Place(
                        sequence=stored.sequence,
                        message_index=reached.message_index,
                        reason=reached.reason,
                        forkable=reached.reason in ("tool_batch", "end"),
                    )
                )
    return found


def shown(turn: Turn, events: Iterable[StoredEvent]) -> list[CheckpointView]:
    """What a client sees of a turn's checkpoints."""
    status = {"tool_batch": "running", "pause": "paused"}
    found = places(events)
    return [
        CheckpointView(
            sequence=place.sequence,
            message_index=place.message_index,
            reason=place.reason,
            status=status.get(place.reason, turn.status),
            is_latest=place is found[-1],
        )
        for place in found
    ]


def snapped(turn: Turn, events: Many[StoredEvent], asked: int) -> Sequence:
    """The last place at or before `asked` that a history may end at; before the first one that is the turn's own
    beginning. Raises ForkOutOfRange for a sequence outside the turn."""
    if not turn.first_sequence <= asked <= turn.last_sequence:
        raise ForkOutOfRange(place=str(asked))
    below = [place.sequence for place in places(events) if place.forkable and place.sequence <= asked]
    return max(below, default=turn.first_sequence)
