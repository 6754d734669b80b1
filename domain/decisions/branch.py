"""New turns whose history ends inside another one: fork and regenerate."""

import msgspec

from domain import commands, replies
from domain.decisions.control import named
from domain.decisions.decision import Decision, Draftsman, Limits
from domain.decisions.queue import enqueue
from domain.errors import ForkOutOfRange, TurnNotTerminal
from domain.parts import ForkSource, Part, TextPart
from domain.turn import Turn

_parts = msgspec.json.Decoder(list[Part])


def fork(draft: Draftsman, command: commands.ForkTurn, limits: Limits) -> Decision:
    """From a checkpoint or the end: the source's history up to there, then the new input. From `last_user`, or from a
    place before the first checkpoint: the source's place is taken by the new turn, with the source's input unless
    another is given."""
    source = named(draft, command.source_turn_id)
    if source.started_at is None:
        raise ForkOutOfRange(place=command.place)
    sequence = source.first_sequence if command.place == "last_user" else command.sequence
    if sequence is not None and not source.first_sequence <= sequence <= source.last_sequence:
        raise ForkOutOfRange(place=command.place)
    given = command.input
    if given is None:
        given = _parts.decode(source.effective_input) if sequence == source.first_sequence else []
    place = ForkSource(turn_id=source.turn_id, sequence=sequence)
    snapped = command.place.isdecimal() and int(command.place) != sequence
    return _branch(draft, command.key, limits, command, given, place, snapped=snapped)


def regenerate(draft: Draftsman, command: commands.RegenerateTurn, limits: Limits) -> Decision:
    """The same input at the same place of the history; the old turn is superseded when the new one completes. A turn
    that was cancelled before it started has no place in the history: its input runs as a new turn would."""
    source = named(draft, command.source_turn_id)
    if not source.terminal:
        raise TurnNotTerminal(status=source.status)
    sequence = source.first_sequence if command.sequence is None else command.sequence
    if not source.first_sequence <= sequence <= source.last_sequence:
        raise ForkOutOfRange(place=str(sequence))
    # Behind a checkpoint the input is part of the history already.
    given = _parts.decode(source.effective_input) if sequence == source.first_sequence else []
    if command.additional_instructions:
        given = [*given, TextPart(command.additional_instructions)]
    place = None
    if source.started_at is not None:
        place = ForkSource(turn_id=source.turn_id, sequence=sequence)
    return _branch(
        draft, command.key, limits, command, given, place, source.turn_id if command.replace_original else None
    )


def _branch(
    draft: Draftsman,
    key: str,
    limits: Limits,
    command: commands.ForkTurn | commands.RegenerateTurn,
    given: list[Part],
    place: ForkSource | None,
    regenerates: str | None = None,
    *,
    snapped: bool = False,
) -> Decision:
    turn: Turn = enqueue(
        draft,
        limits,
        turn_id=command.turn_id,
        input=given,
        key=key,
        context_version=command.context_version,
        forked_from=place,
        regenerates=regenerates,
        metadata=command.metadata,
    )
    reply = replies.ForkedReply(
        sequence=turn.first_sequence,
        turn_id=turn.turn_id,
        status=turn.status,
        enqueue_sequence=turn.enqueue_sequence,
        queue_state=draft.head.queue_state,
        forked_from=place,
        snapped=snapped,
    )
    return Decision(events=draft.events, reply=reply)
