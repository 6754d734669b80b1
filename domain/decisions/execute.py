"""What the claim holder may write. The fence is checked here, in the transaction that assigns the sequence."""

import msgspec

from domain import commands, replies
from domain.clock import rfc3339
from domain.decisions.claim import start_next
from domain.decisions.decision import Decision, Draftsman, Limits
from domain.decisions.hooks import schedule
from domain.decisions.queue import settle
from domain.errors import StaleFence
from domain.events import turn as turn_events
from domain.ids import Micros, TurnId
from domain.parts import Failure, Requirement
from domain.turn import Turn


def _held(draft: Draftsman, command: commands.ExecutorCommand) -> Turn:
    active = draft.state.active()
    if (
        active is None
        or active.turn_id != command.turn_id
        or active.status != "running"
        or active.released
        or draft.head.fence != command.fence
    ):
        raise StaleFence()
    return active


def record(draft: Draftsman, command: commands.RecordEvents, limits: Limits) -> Decision:
    """Append; the reply tells of a stored interrupt."""
    active = _held(draft, command)
    draft.adopt(command.events)
    return _reply(draft, active)


def pause(draft: Draftsman, command: commands.PauseTurn, limits: Limits) -> Decision:
    """Wait for people, unless an interrupt was stored: then the turn ends here."""
    active = _held(draft, command)
    draft.adopt(command.events)
    if active.interrupt_then is not None:
        _seal_interrupted(draft, active, command.attempt, command.frame, {})
        schedule(draft, active, command.hooks)
    else:
        draft.write(
            turn_events.TurnPaused(
                attempt=command.attempt,
                frame=command.frame,
                requirements=_expiring(command.requirements, command.expires_in, draft.at),
                next_frame=command.frame + 1,
            ),
            active.turn_id,
        )
    return _reply(draft, active)


def _expiring(requirements: list[Requirement], seconds: float | None, at: Micros) -> list[Requirement]:
    if not seconds:
        return requirements
    end = rfc3339(Micros(at + round(seconds * 1_000_000)))
    return [r if r.expires_at is not None else msgspec.structs.replace(r, expires_at=end) for r in requirements]


def finish(draft: Draftsman, command: commands.FinishTurn, limits: Limits) -> Decision:
    """End the turn. A finish that meets a stored interrupt seals as interrupted; a completed regeneration
    supersedes. Background hooks follow in the same transaction."""
    active = _held(draft, command)
    draft.adopt(command.events)
    if active.interrupt_then is not None or command.outcome == "interrupted":
        _seal_interrupted(draft, active, command.attempt, command.frame, command.usage)
    elif command.outcome == "completed":
        draft.write(
            turn_events.TurnCompleted(
                attempt=command.attempt, frame=command.frame, output=command.output, usage=command.usage
            ),
            active.turn_id,
        )
        replaced = None if active.regenerates is None else draft.state.turns.get(TurnId(active.regenerates))
        if replaced is not None and replaced.superseded_by is None:
            draft.write(turn_events.TurnSuperseded(by_turn_id=active.turn_id), replaced.turn_id)
        settle(draft, active)
    else:
        error = command.error or Failure(code="agent_error", message="The agent failed.")
        draft.write(
            turn_events.TurnFailed(error=error, attempt=command.attempt, frame=command.frame, usage=command.usage),
            active.turn_id,
        )
        settle(draft, active)
    schedule(draft, active, command.hooks)
    started = None if command.claim_next is None else start_next(draft, command.claim_next)
    decision = _reply(draft, active, next=None if started is None else started[0])
    decision.claim = None if started is None else started[1]
    return decision


def release(draft: Draftsman, command: commands.ReleaseTurn, limits: Limits) -> Decision:
    """Hand back: the turn stays running, without a claim, and whoever claims it goes on from the last checkpoint."""
    active = _held(draft, command)
    draft.adopt(command.events)
    draft.write(turn_events.TurnReleased(), active.turn_id)
    return _reply(draft, active)


def _seal_interrupted(draft: Draftsman, active: Turn, attempt: int, frame: int, usage: dict[str, object]) -> None:
    draft.write(
        turn_events.TurnInterrupted(by=active.interrupt_by or "system", usage=usage, attempt=attempt, frame=frame),
        active.turn_id,
    )
    settle(draft, active)


def _reply(draft: Draftsman, active: Turn, next: replies.ClaimedTurn | None = None) -> Decision:
    head = draft.head
    waits = head.active_turn_id is None and head.queue_state == "open" and head.queued_count > 0
    reply = replies.ExecutorReply(
        sequence=head.last_sequence,
        interrupt_requested=active.interrupt_then is not None and not active.terminal,
        status=active.status,
        next=next,
        queue_waits=waits or active.released,
    )
    return Decision(events=draft.events, reply=reply)
