"""What the model is told of the past: a walk of `parent_turn_id`, never a scan by sequence.

A turn's parent is fixed when it is claimed. A fork's parent is its source, and the fork's place cuts the source's part:
at the source's own `turn.queued` the source is left out and the walk goes on with *its* parent; at a checkpoint the
source counts up to that checkpoint; without a place it counts whole. Every ancestor that is a fork cuts its own parent
likewise."""

import itertools
from collections.abc import Sequence as Many
from typing import Protocol

import msgspec

from domain.events import item, turn
from domain.events.envelope import StoredEvent
from domain.ids import Sequence, SessionId, TurnId
from domain.parts import ForkSource, Part


class Ancestor(Protocol):
    """A turn as the walk needs it; `domain.turn.Turn` is one."""

    @property
    def turn_id(self) -> TurnId: ...

    @property
    def first_sequence(self) -> Sequence: ...

    @property
    def parent_turn_id(self) -> TurnId | None: ...

    @property
    def forked_from(self) -> ForkSource | None: ...


class PastTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the past. `messages`: the exact model messages of its checkpoints in order, each a serialised list in
    the format of the runtime that made them; empty where it ended before its first checkpoint: then only `input` is
    known."""

    turn_id: TurnId
    input: list[Part]
    messages: list[bytes]


class TurnLog(Protocol):
    """Reads of whole turns, private parts included. Served by one process for itself: never over a wire."""

    async def turn_chain(self, session_id: SessionId, turn_id: TurnId) -> Many[Ancestor]:
        """The turn, its parent, the parent's parent … to the first."""
        ...

    async def turn_events(self, session_id: SessionId, turn_id: TurnId) -> Many[StoredEvent]:
        """Events of the turn in sequence."""
        ...

    async def turn_states(self, session_id: SessionId, turn_ids: Many[TurnId]) -> Many[StoredEvent]:
        """Of those turns only what a model's past is made of, in sequence: `turn.queued`, `turn.input_rewritten` and
        `checkpoint.reached` with their private parts. One statement for a whole conversation."""
        ...


class Segment(msgspec.Struct, frozen=True):
    """A turn that counts up to and including `up_to` (None: whole)."""

    turn_id: TurnId
    up_to: Sequence | None


def segments(chain: Many[Ancestor]) -> list[Segment]:
    """What of the ancestors of `chain[0]` its model sees, oldest first. `chain` is a turn and its ancestors, nearest
    first."""
    seen: list[Segment] = []
    for child, parent in itertools.pairwise(chain):
        source = child.forked_from
        cut = None if source is None or source.turn_id != parent.turn_id else source.sequence
        if cut is not None and cut <= parent.first_sequence:
            continue
        seen.append(Segment(parent.turn_id, None if cut is None else Sequence(cut)))
    seen.reverse()
    return seen


def past_of(pieces: Many[Segment], events: Many[StoredEvent]) -> list[PastTurn]:
    """The past that these events tell, cut as the segments say."""
    inputs: dict[str, list[Part]] = {}
    messages: dict[str, list[bytes]] = {}
    limits = {segment.turn_id: segment.up_to for segment in pieces}
    for stored in events:
        if stored.turn_id is None or stored.turn_id not in limits:
            continue
        limit = limits[stored.turn_id]
        if limit is not None and stored.sequence > limit:
            continue
        data = stored.event()
        match data:
            case turn.TurnQueued() | turn.InputRewritten():
                inputs[stored.turn_id] = data.input
            case item.CheckpointReached() if stored.private is not None:
                messages.setdefault(stored.turn_id, []).append(stored.private)
    return [
        PastTurn(
            turn_id=segment.turn_id,
            input=inputs.get(segment.turn_id, []),
            messages=messages.get(segment.turn_id, []),
        )
        for segment in pieces
    ]


async def read_past(log: TurnLog, session_id: SessionId, turn_id: TurnId) -> list[PastTurn]:
    """The past of a claimed turn. Read it after the claim has committed: its parent is fixed in that transaction, and
    the parent ended before it."""
    pieces = segments(await log.turn_chain(session_id, turn_id))
    if not pieces:
        return []
    return past_of(pieces, await log.turn_states(session_id, [segment.turn_id for segment in pieces]))
