"""Turns that have ended elsewhere, taken into a session as they are."""

import msgspec

from domain import commands, replies
from domain.decisions.decision import Decision, Draftsman, Limits
from domain.errors import IllegalEvents
from domain.events import turn as turn_events


def copy(draft: Draftsman, command: commands.CopyTurns, limits: Limits) -> Decision:
    """Whole turns, from their input to their end: nobody can claim what was never open."""
    if draft.next_sequence != command.first:
        raise IllegalEvents(reason=f"events from {command.first} where {draft.next_sequence} is due")
    for one in command.events:
        event, private = one.data, one.private
        if isinstance(event, turn_events.TurnQueued):
            event = msgspec.structs.replace(event, enqueue_sequence=draft.head.next_enqueue_sequence)
        elif isinstance(event, turn_events.TurnStarted):
            private = msgspec.json.encode(turn_events.StartedPrivate(draft.head.fence + 1, "copied"))
        draft.write(event, one.turn_id, private)
    if draft.head.active_turn_id is not None or draft.head.queued_count:
        raise IllegalEvents(reason="a turn that has not ended")
    reply = replies.SessionReply(sequence=draft.head.last_sequence, agent_id=draft.head.agent_id)
    return Decision(events=draft.events, reply=reply)
