"""What becomes of an active turn that somebody wants to take over: judged by the log, in the claiming transaction."""

from domain import commands
from domain.decisions.decision import Limits
from domain.events import turn as turn_events
from domain.events.base import Event
from domain.events.turn import StartReason
from domain.ids import FRAMES_PER_ATTEMPT, Micros
from domain.parts import Failure
from domain.session import SessionState
from domain.turn import Turn

Verdict = StartReason | Event | None
"""Why the turn goes on; or the event that ends it; or None: leave it alone."""

_MICROS = 1_000_000


def judge(state: SessionState, active: Turn, command: commands.ClaimTurn, at: Micros, limits: Limits) -> Verdict:
    """The verdict on the active turn. A live claim is left alone unless its turn has run out of time."""
    if active.status == "paused":
        return _paused(active, at)
    overdue = _overdue(state, active, at, limits)
    known = _known(active, command)
    if active.released:
        if _stopped(active) is None and known is not None:
            return _answered(active, known) or overdue
        return _stopped(active) or _unsettled(active) or "released"
    if state.claim is not None and state.claim.live:
        return overdue
    if not command.take_over:
        return None
    stopped = _stopped(active) or overdue
    if stopped is not None:
        return stopped
    if known is not None:
        return _answered(active, known)
    unsettled = _unsettled(active)
    if unsettled is not None:
        return unsettled
    if active.deaths + 1 >= limits.poison_deaths:
        return _failed("poison", f"{active.deaths + 1} workers died in this turn without getting on.")
    return "worker_lost"


def _paused(active: Turn, at: Micros) -> Verdict:
    if active.continued:
        return "continued"
    if active.expires_at is not None and active.expires_at <= at:
        return _failed("requirement_expired", "Nobody answered in time.")
    return None


def _stopped(active: Turn) -> Event | None:
    if active.interrupt_then is None:
        return None
    return turn_events.TurnInterrupted(by=active.interrupt_by or "system")


def _unsettled(active: Turn) -> Event | None:
    if active.progress is None or not active.progress.unsettled():
        return None
    return _failed("outcome_unknown", "A tool was running when its worker stopped, and may not run twice.")


def _overdue(state: SessionState, active: Turn, at: Micros, limits: Limits) -> Event | None:
    if active.leg_started_at is not None and at - active.leg_started_at > limits.turn_seconds * _MICROS:
        return _failed("timeout", f"The turn ran for longer than {limits.turn_seconds:g} s.")
    in_tool = active.progress is not None and active.progress.in_tool()
    # The silence of a worker that is gone says nothing of the agent: its work may go on elsewhere, or be recovered.
    live = state.claim is not None and state.claim.live
    if live and state.claim is not None and not in_tool and state.claim.silent_seconds > limits.silent_seconds:
        return _failed("timeout", f"The agent gave no sign of life for {limits.silent_seconds:g} s.")
    return None


def _known(active: Turn, command: commands.ClaimTurn) -> commands.Answered | None:
    """What a runtime that was asked knows of this turn, if it knows anything."""
    answered = command.answered
    return (
        answered
        if answered is not None and answered.turn_id == active.turn_id and answered.state != "unknown"
        else None
    )


def _answered(active: Turn, answered: commands.Answered) -> Verdict:
    if answered.state == "running":
        return None
    # From outside the executor: it takes the first number of the base after its attempt, as all such ends do.
    return turn_events.TurnCompleted(
        attempt=active.attempt, frame=(active.attempt + 1) * FRAMES_PER_ATTEMPT, output=answered.output
    )


def _failed(code: str, message: str) -> Event:
    return turn_events.TurnFailed(error=Failure(code=code, message=message, retryable=code != "poison"))
