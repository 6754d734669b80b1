"""Background hooks: scheduled with the end of a turn, ended once each, whenever that is."""

from collections.abc import Iterable

from domain import commands, replies
from domain.decisions.control import named
from domain.decisions.decision import Decision, Draftsman, Limits
from domain.events.hook import HookCompleted, HookFailed, HookScheduled
from domain.turn import Turn


def schedule(draft: Draftsman, ended: Turn, jobs: Iterable[commands.HookJob]) -> None:
    """Those that follow this kind of end, which may be another one than the executor asked for."""
    for job in jobs:
        if ended.status not in job.after:
            continue
        draft.write(HookScheduled(hook=job.hook, job_id=job.job_id, kind=job.kind), ended.turn_id)
        if job.done:
            draft.write(HookCompleted(job_id=job.job_id, result=job.result), ended.turn_id)


def end(draft: Draftsman, command: commands.EndHook, limits: Limits) -> Decision:
    """Also in a session that is closed: nothing but the log knows of these jobs."""
    turn = named(draft, command.turn_id)
    if command.error is None:
        draft.write(HookCompleted(job_id=command.job_id, result=command.result), turn.turn_id)
    else:
        draft.write(HookFailed(job_id=command.job_id, error=command.error, attempts=command.attempts), turn.turn_id)
    reply = replies.TurnReply(sequence=draft.head.last_sequence, turn_id=turn.turn_id, status=turn.status)
    return Decision(events=draft.events, reply=reply)
