"""What people do to a turn from outside: cancel, interrupt, answer."""

import msgspec

from domain import commands, replies
from domain.clock import rfc3339
from domain.decisions.decision import Decision, Draftsman, Limits
from domain.decisions.queue import open_if_empty, settle
from domain.errors import (
    AnswerConflict,
    RequirementExpired,
    TurnNotCancellable,
    TurnNotFound,
    TurnNotPaused,
    TurnNotRunning,
    UndecidedAnswer,
    UnknownRequirement,
)
from domain.events import turn as turn_events
from domain.ids import TurnId
from domain.parts import Answer, Requirement
from domain.turn import Turn


def named(draft: Draftsman, turn_id: TurnId) -> Turn:
    """The turn a command names."""
    turn = draft.state.turns.get(turn_id)
    if turn is None:
        raise TurnNotFound(turn_id=turn_id)
    return turn


def cancel(draft: Draftsman, command: commands.CancelTurn, limits: Limits) -> Decision:
    """End a queued or paused turn; after a paused one the next may start."""
    turn = named(draft, command.turn_id)
    if turn.status not in ("queued", "paused"):
        raise TurnNotCancellable(status=turn.status)
    was = turn.status
    draft.write(turn_events.TurnCancelled(by=command.by), turn.turn_id)
    if was == "paused":
        settle(draft, turn)
    else:
        open_if_empty(draft, command.by)
    return _reply(draft, turn)


def interrupt(draft: Draftsman, command: commands.InterruptTurn, limits: Limits) -> Decision:
    """Store the intent; the owner, or recovery, ends the turn. Asking twice is one intent; asking after a `go_on`
    makes it pause."""
    turn = named(draft, command.turn_id)
    if turn.status != "running":
        raise TurnNotRunning(status=turn.status)
    if turn.interrupt_then is None or (turn.interrupt_then == "go_on" and command.then == "pause"):
        draft.write(turn_events.InterruptRequested(by=command.by, then=command.then), turn.turn_id)
    return _reply(draft, turn)


def answer(draft: Draftsman, command: commands.ContinueTurn, limits: Limits) -> Decision:
    """First answer wins, an equal repeat is fine, a contrary one is refused; the set complete, the turn may go on. An
    answer that names an item is for the question about that item: one of an earlier pause answers no later one."""
    turn = named(draft, command.turn_id)
    asked = {requirement.tool_call_id: requirement for requirement in turn.requirements}
    for tool_call_id, given in command.answers.items():
        requirement = asked.get(tool_call_id)
        meant = command.items.get(tool_call_id)
        if requirement is None or (meant is not None and meant != requirement.item_id):
            if turn.status != "paused":
                raise TurnNotPaused(status=turn.status)
            raise UnknownRequirement(tool_call_id=tool_call_id)
        if requirement.answer is None:
            if turn.status != "paused":
                raise TurnNotPaused(status=turn.status)
            if requirement.expired(draft.at):
                # A worker will say so in the log; until then nobody may go on from here.
                raise RequirementExpired(tool_call_id=tool_call_id)
            _check_decides(requirement, given)
        elif not requirement.answer.same_decision(given):
            raise AnswerConflict(tool_call_id=tool_call_id)
    if not command.answers and turn.status != "paused":
        raise TurnNotPaused(status=turn.status)
    for tool_call_id, given in command.answers.items():
        if asked[tool_call_id].answer is None:
            stamped = msgspec.structs.replace(given, at=rfc3339(draft.at))
            draft.write(turn_events.TurnAnswered(tool_call_id=tool_call_id, answer=stamped), turn.turn_id)
    if turn.status == "paused" and not turn.continued and not turn.open_requirements():
        draft.write(turn_events.TurnContinued(), turn.turn_id)
    return _reply(draft, turn)


def _check_decides(requirement: Requirement, given: Answer) -> None:
    decides = {
        "approval": given.approved is not None,
        "input": given.arguments is not None or given.approved is False,
        "external": given.result is not None or given.approved is False,
    }
    if not decides[requirement.kind]:
        raise UndecidedAnswer(tool_call_id=requirement.tool_call_id)


def _reply(draft: Draftsman, turn: Turn) -> Decision:
    reply = replies.TurnReply(
        sequence=draft.head.last_sequence,
        turn_id=turn.turn_id,
        status=turn.status,
        interrupt_requested=turn.interrupt_then is not None,
    )
    return Decision(events=draft.events, reply=reply)
