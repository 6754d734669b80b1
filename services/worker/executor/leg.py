"""What an execution starts from: the past, and what the log says of the turn itself."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from domain import replies
from domain.errors import Unavailable
from domain.events import item, turn
from domain.events.base import ExecutorEvent
from domain.events.envelope import StoredEvent
from domain.history import PastTurn, TurnLog, read_past
from domain.ids import SessionId, TurnId
from domain.parts import Part
from domain.runtime import Attachments, Gate, Interrupt, NoAttachments, PastPause, RecordedCall
from services.worker.executor.lease import Lease

_RETRY_SECONDS = 0.2

_parts = msgspec.json.Decoder(list[Part])


class Told(msgspec.Struct, kw_only=True):
    """What the turn's own log says, when it was started before."""

    messages: list[bytes] = []
    recorded: dict[str, RecordedCall] = {}
    pauses: list[PastPause] = []
    usage: list[item.UsageRecorded] = []
    rewritten_by: list[str] = []
    said: dict[str, str] = {}
    begun: bool = False


class Leg:
    """Implements `domain.runtime.Execution`."""

    def __init__(
        self,
        claim: replies.ClaimedTurn,
        past: list[PastTurn],
        told: Told,
        *,
        gate: Gate,
        interrupt: Interrupt,
        new_id: Callable[[], str],
        tool_result_bytes: int,
        attachments: Attachments | None = None,
    ) -> None:
        self.session_id = SessionId(claim.session_id)
        self.turn_id = TurnId(claim.turn_id)
        self.attempt = claim.attempt
        self.input: list[Part] = _parts.decode(claim.input)
        self.context_version = claim.context_version
        self.metadata: Mapping[str, Any] = claim.metadata or {}
        self.past = past
        source = claim.forked_from
        self.forked = source is not None and bool(past) and past[-1].turn_id == source.turn_id
        self.messages = told.messages
        self.recorded: Mapping[str, RecordedCall] = told.recorded
        self.pauses = told.pauses
        self.tool_result_bytes = tool_result_bytes
        self.attachments: Attachments = attachments or NoAttachments()
        self.gate = gate
        self.interrupt = interrupt
        self.new_id = new_id


async def read_start(log: TurnLog, claim: replies.ClaimedTurn, lease: Lease) -> tuple[list[PastTurn], Told]:
    """Read after the claim has committed, so that it holds whatever came before it; what came after it is nobody's
    business here. A worker that was frozen in between may have lost the turn meanwhile, and would take what its
    successor has begun for its own. Waits for a store that is away."""
    session_id, turn_id = SessionId(claim.session_id), TurnId(claim.turn_id)
    while True:
        try:
            past = await read_past(log, session_id, turn_id)
            events = [] if claim.reason == "first" else await log.turn_events(session_id, turn_id)
            told = tell(stored for stored in events if stored.sequence <= claim.started_sequence)
        except Unavailable:
            await asyncio.sleep(_RETRY_SECONDS)
            await lease.ahead()
        else:
            return past, told


def tell(events: Iterable[StoredEvent]) -> Told:
    """The turn's own state, from its events in sequence."""
    told = Told()
    for stored in events:
        event = stored.event()
        # The runtime starts when all pre-hooks have passed: its first trace says that they have.
        told.begun = told.begun or isinstance(event, ExecutorEvent)
        match event:
            case turn.InputRewritten() as rewritten:
                told.rewritten_by.append(rewritten.by)
            case item.ItemCompleted(kind="text", scope=None, text=str(text)) as spoken:
                told.said[spoken.item_id] = text
            case item.ItemCompleted(tool_call=item.ToolCallData() as call) as made:
                told.recorded[made.item_id] = RecordedCall(
                    item_id=made.item_id, tool_call_id=call.tool_call_id, name=call.name, idempotent=call.idempotent
                )
            case item.ToolStarted() as started if started.item_id in told.recorded:
                known = told.recorded[started.item_id]
                told.recorded[started.item_id] = msgspec.structs.replace(known, started=True)
            case item.ToolResultSnapshot(final=False) as result if result.item_id in told.recorded:
                known = told.recorded[result.item_id]
                told.recorded[result.item_id] = msgspec.structs.replace(known, revision=result.revision)
            case item.ToolResultSnapshot(final=True) as result if result.item_id in told.recorded:
                told.recorded[result.item_id] = msgspec.structs.replace(
                    told.recorded[result.item_id],
                    output=result.output,
                    is_error=result.is_error,
                    private=stored.private,
                )
            case item.ItemSuperseded() as superseded:
                for item_id in superseded.item_ids:
                    told.recorded.pop(item_id, None)
                    told.said.pop(item_id, None)
            case item.CheckpointReached() if stored.private is not None:
                told.messages.append(stored.private)
            case item.UsageRecorded() as usage:
                told.usage.append(usage)
            case turn.TurnPaused() as paused:
                told.pauses.append(PastPause(requirements=paused.requirements))
            case turn.TurnAnswered() as answered:
                told.pauses[-1].answers[answered.tool_call_id] = answered.answer
    return told
