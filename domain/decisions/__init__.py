"""`decide(state, command) -> events or rejection`: every rule of the session and its turns, without I/O.

Order inside a decision: the known key is answered before (by the pipeline, from `command_log`), then existence, then
fence, then limits.
"""

from collections.abc import Callable
from typing import Any

from domain import commands
from domain.decisions import branch, claim, control, copy, execute, hooks, queue
from domain.decisions.decision import Decision, Draftsman, Limits
from domain.errors import NotAdmitted, SessionNotFound, TooManyTurns
from domain.ids import Micros, TurnId
from domain.session import SessionState, Wanted

_DECIDERS: dict[type[commands.Command], Callable[[Draftsman, Any, Limits], Decision]] = {
    commands.CreateSession: queue.create_session,
    commands.SubmitTurn: queue.submit,
    commands.ResumeQueue: queue.resume,
    commands.CloseSession: queue.close,
    commands.EraseSession: queue.erase,
    commands.CancelTurn: control.cancel,
    commands.InterruptTurn: control.interrupt,
    commands.ContinueTurn: control.answer,
    commands.ForkTurn: branch.fork,
    commands.RegenerateTurn: branch.regenerate,
    commands.ClaimTurn: claim.claim,
    commands.RecordEvents: execute.record,
    commands.PauseTurn: execute.pause,
    commands.FinishTurn: execute.finish,
    commands.ReleaseTurn: execute.release,
    commands.EndHook: hooks.end,
    commands.CopyTurns: copy.copy,
}

_WHILE_CLOSING = (
    commands.ExecutorCommand,
    commands.ClaimTurn,
    commands.CloseSession,
    commands.CreateSession,
    commands.EraseSession,
    commands.EndHook,
)


def decide(state: SessionState, command: commands.Command, at: Micros, limits: Limits) -> Decision:
    """What the command leads to. `state` is evolved in place, so pass a scratch copy: on a Rejection it must be
    thrown away. Raises Rejection; nothing else on any well-formed command."""
    head = state.head
    if head is None and not isinstance(command, commands.CreateSession):
        raise SessionNotFound(session_id=state.session_id)
    if head is not None and (head.closing or head.closed_at is not None) and not isinstance(command, _WHILE_CLOSING):
        raise SessionNotFound(session_id=state.session_id)
    if head is not None and head.closed_at is not None:
        if isinstance(command, commands.CreateSession):
            raise SessionNotFound(session_id=state.session_id)
        if isinstance(command, commands.CloseSession):
            return queue.already_closed(head)
    if isinstance(command, commands.BeginTurn):
        _admit(state, command, limits)
    return _DECIDERS[type(command)](Draftsman(state, at), command, limits)


def _admit(state: SessionState, command: commands.BeginTurn, limits: Limits) -> None:
    """Raises NotAdmitted, TooManyTurns."""
    if not command.admitted:
        raise NotAdmitted()
    if command.owner is not None and state.open_turns >= limits.active_turns:
        raise TooManyTurns(limit=limits.active_turns)


def wanted(command: commands.Command) -> Wanted:
    """Which turns the decision needs loaded."""
    match command:
        case commands.SubmitTurn():
            return Wanted(
                external_ids=() if command.external_id is None else (command.external_id,),
                queued=1 if command.if_busy == "reject" else 0,
            )
        case commands.CancelTurn() | commands.InterruptTurn() | commands.ContinueTurn() | commands.EndHook():
            return Wanted(turn_ids=(command.turn_id,))
        case commands.ForkTurn() | commands.RegenerateTurn():
            return Wanted(turn_ids=(command.source_turn_id,))
        case commands.CloseSession():
            return Wanted(all_queued=True)
        case commands.CopyTurns():
            # Of turns that came in before, their marks come now.
            return Wanted(turn_ids=tuple({TurnId(one.turn_id) for one in command.events if one.turn_id is not None}))
        case commands.ClaimTurn():
            return Wanted(queued=1)
        case commands.FinishTurn():
            return Wanted(turn_ids=(command.turn_id,), queued=0 if command.claim_next is None else 1)
        case commands.ExecutorCommand():
            return Wanted(turn_ids=(command.turn_id,))
        case _:
            return Wanted()


__all__ = ["Decision", "Limits", "decide", "wanted"]
