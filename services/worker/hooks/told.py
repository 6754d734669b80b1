"""What a job in the background is told of its turn: read from the log, so that any worker can run it."""

from collections.abc import Iterable

from domain.events import item, turn
from domain.events.envelope import StoredEvent
from domain.parts import Scope, input_text
from domain.runtime import Attachments, NoAttachments
from infra.postgres.hook_jobs import HookTry
from services.worker.hooks.declared import End, HookRun

NO_ATTACHMENTS = NoAttachments()


def told(
    tried: HookTry,
    events: Iterable[StoredEvent],
    attachments: Attachments = NO_ATTACHMENTS,
    member: str | None = None,
) -> HookRun | None:
    """None where the log knows no such turn, or not its end. `member`: the output is what that one said."""
    queued: turn.TurnQueued | None = None
    parts = None
    said: dict[str, str] = {}
    end: turn.TurnCompleted | turn.TurnFailed | turn.TurnInterrupted | None = None
    for stored in events:
        match stored.event():
            case turn.TurnQueued() as event:
                queued, parts = event, event.input
            case turn.InputRewritten() as event:
                parts = event.input
            case item.ItemCompleted(kind="text", text=str(text)) as event if _is_of(event.scope, member):
                said[event.item_id] = text
            case item.ItemSuperseded() as event:
                for item_id in event.item_ids:
                    said.pop(item_id, None)
            case turn.TurnCompleted() | turn.TurnFailed() | turn.TurnInterrupted() as event:
                end = event
    if queued is None or parts is None or end is None:
        return None
    output = "".join(said.values()) or None
    if member is None and isinstance(end, turn.TurnCompleted):
        output = end.output or output
    return HookRun(
        session_id=tried.session_id,
        turn_id=tried.turn_id,
        agent_id=tried.agent_id,
        hook=tried.hook,
        input=input_text(parts),
        parts=parts,
        output=output,
        status=_STATUS[end.type],
        error_code=end.error.code if isinstance(end, turn.TurnFailed) else None,
        context_version=queued.context_version,
        job_id=tried.job_id,
        attempt=tried.attempts,
        attachments=attachments,
    )


def _is_of(scope: Scope | None, member: str | None) -> bool:
    return scope is None if member is None else scope is not None and scope.id == member


_STATUS: dict[str, End] = {
    turn.TurnCompleted.type: "completed",
    turn.TurnFailed.type: "failed",
    turn.TurnInterrupted.type: "interrupted",
}
