"""Opening a session, filling its queue, and what the queue does when a turn has ended."""

import msgspec

from domain import commands, replies
from domain.decisions.decision import Decision, Draftsman, Limits
from domain.errors import InputTooLarge, QueueFull, QueueNotPaused, SessionBusy, SessionIdTaken, TurnIdTaken
from domain.events import session as session_events
from domain.events import turn as turn_events
from domain.ids import TurnId
from domain.parts import ForkSource, Part
from domain.session import Head
from domain.turn import Turn


def create_session(draft: Draftsman, command: commands.CreateSession, limits: Limits) -> Decision:
    """Repeatable by id: a session that exists with the same agent is the same answer."""
    head = draft.state.head
    if head is not None:
        if (head.agent_id, head.component) != (command.agent_id, command.component):
            raise SessionIdTaken(session_id=command.session_id)
        return Decision(events=[], reply=replies.SessionReply(sequence=head.last_sequence, agent_id=head.agent_id))
    draft.write(session_events.SessionCreated(agent_id=command.agent_id, component=command.component))
    return Decision(events=draft.events, reply=replies.SessionReply(sequence=1, agent_id=command.agent_id))


def submit(draft: Draftsman, command: commands.SubmitTurn, limits: Limits) -> Decision:
    """Always last in the queue; `reject` refuses a busy session, `interrupt` stops what runs and lets the queue go
    on."""
    if command.if_busy == "reject":
        busy = draft.state.active() or draft.state.next_queued()
        if busy is not None:
            raise SessionBusy(active_turn_id=busy.turn_id)
    if command.external_id is not None and any(
        t.external_id == command.external_id for t in draft.state.turns.values()
    ):
        raise TurnIdTaken(external_id=command.external_id)
    turn = enqueue(
        draft,
        limits,
        turn_id=command.turn_id,
        input=command.input,
        context_version=command.context_version,
        key=command.key,
        external_id=command.external_id,
        metadata=command.metadata,
    )
    if command.if_busy == "interrupt":
        _make_way(draft, command.by)
    return Decision(events=draft.events, reply=queued_reply(draft, turn))


def enqueue(
    draft: Draftsman,
    limits: Limits,
    *,
    turn_id: TurnId,
    input: list[Part],
    key: str,
    context_version: str | None = None,
    external_id: str | None = None,
    forked_from: ForkSource | None = None,
    regenerates: str | None = None,
    metadata: dict[str, object] | None = None,
) -> Turn:
    """Write `turn.queued` within the limits."""
    if draft.head.queued_count >= limits.queue_depth:
        raise QueueFull(depth=limits.queue_depth)
    size = len(msgspec.json.encode(input))
    if size > limits.input_bytes:
        raise InputTooLarge(size=size, limit=limits.input_bytes)
    draft.write(
        turn_events.TurnQueued(
            enqueue_sequence=draft.head.next_enqueue_sequence,
            input=input,
            context_version=context_version,
            idempotency_key=key,
            external_id=external_id,
            forked_from=forked_from,
            regenerates=regenerates,
            metadata=metadata,
        ),
        turn_id,
    )
    return draft.state.turns[turn_id]


def queued_reply(draft: Draftsman, turn: Turn) -> replies.QueuedReply:
    """What the 202 says."""
    return replies.QueuedReply(
        sequence=turn.first_sequence,
        turn_id=turn.turn_id,
        status=turn.status,
        enqueue_sequence=turn.enqueue_sequence,
        queue_state=draft.head.queue_state,
    )


def _make_way(draft: Draftsman, by: str) -> None:
    active = draft.state.active()
    if active is None:
        return
    if active.status == "paused":
        draft.write(turn_events.TurnInterrupted(by=by), active.turn_id)
    elif active.interrupt_then is None:
        draft.write(turn_events.InterruptRequested(by=by, then="go_on"), active.turn_id)


def resume(draft: Draftsman, command: commands.ResumeQueue, limits: Limits) -> Decision:
    """Open a queue that a bad end has paused."""
    if draft.head.queue_state != "paused":
        raise QueueNotPaused()
    sequence = draft.write(session_events.QueueResumed(by=command.by))
    return Decision(events=draft.events, reply=replies.QueueReply(sequence=sequence, queue_state="open"))


def close(draft: Draftsman, command: commands.CloseSession, limits: Limits) -> Decision:
    """Cancel what waits; close now, or when the running turn has ended."""
    for waiting in draft.state.queued():
        draft.write(turn_events.TurnCancelled(by=command.by), waiting.turn_id)
    active = draft.state.active()
    if active is not None and active.status == "running":
        if not draft.head.closing:
            draft.write(turn_events.InterruptRequested(by=command.by, then="go_on", closing=True), active.turn_id)
    else:
        if active is not None:
            draft.write(turn_events.TurnCancelled(by=command.by), active.turn_id)
        draft.write(session_events.SessionClosed(reason="deleted"))
    head = draft.head
    return Decision(
        events=draft.events,
        reply=replies.SessionReply(
            sequence=head.last_sequence, agent_id=head.agent_id, closed=head.closed_at is not None
        ),
    )


def erase(draft: Draftsman, command: commands.EraseSession, limits: Limits) -> Decision:
    """Of an idle session, open or closed: what waits or runs needs its input."""
    head = draft.head
    if head.active_turn_id is not None or head.queued_count:
        raise SessionBusy(active_turn_id=head.active_turn_id or "(queued)")
    sequence = draft.write(session_events.SessionErased(up_to_sequence=head.last_sequence))
    closed = head.closed_at is not None
    return Decision(
        events=draft.events, reply=replies.SessionReply(sequence=sequence, agent_id=head.agent_id, closed=closed)
    )


def already_closed(head: Head) -> Decision:
    """Deleting twice is the same answer."""
    reply = replies.SessionReply(sequence=head.last_sequence, agent_id=head.agent_id, closed=True)
    return Decision(events=[], reply=reply)


def settle(draft: Draftsman, ended: Turn) -> None:
    """What follows the end of an active turn: the close that waited for it, or the pause of a queue in which
    something waits."""
    if draft.head.closing:
        draft.write(session_events.SessionClosed(reason="deleted"))
        return
    reason = {"failed": "turn_failed", "interrupted": "turn_interrupted"}.get(ended.status)
    if reason is None or not draft.head.queued_count or draft.head.queue_state == "paused":
        return
    if ended.status == "interrupted" and ended.interrupt_then != "pause":
        return
    draft.write(session_events.QueuePaused(reason=reason))  # type: ignore[arg-type]


def open_if_empty(draft: Draftsman, by: str) -> None:
    """A paused queue in which nothing waits any more is open again."""
    if draft.head.queue_state == "paused" and not draft.head.queued_count:
        draft.write(session_events.QueueResumed(by=by))
