"""What happens to a run: frames and events, one after the other. Pure."""

from typing import Any

import msgspec

from domain.events import item
from domain.events import turn as turn_events
from domain.frames import LiveItemDelta
from domain.ids import Micros
from domain.parts import Answer, Requirement
from services.gateway.dialects.agentos.calls import Call
from services.gateway.dialects.agentos.messages import messages_of
from services.gateway.dialects.agentos.order import Placed
from services.gateway.dialects.agentos.run import Place, Run, Text


def apply(run: Run, placed: Placed) -> None:
    """The next frame, or an event without one."""
    data, at = placed.data, placed.at
    match data:
        case turn_events.TurnQueued():
            _queued(run, data, placed)
        case turn_events.InputRewritten():
            run.input = data.input
        case turn_events.TurnStarted():
            run.status, run.continued, run.attempt = "running", False, data.attempt
            run.started_at = at if run.started_at is None else run.started_at
        case turn_events.TurnPaused():
            run.status, run.asked_at = "paused", at
            _ask(run, data.requirements)
        case turn_events.TurnAnswered():
            _answer(run, data.tool_call_id, data.answer)
        case turn_events.TurnContinued():
            run.continued = True
        case LiveItemDelta(scope=None):
            # In the order of the stream: texts of one run may come side by side.
            run.pieces.append((data.item_id, data.text))
        case item.ItemSuperseded():
            # Some may come later: they wait behind a hole of their attempt.
            run.gone.update(data.item_ids)
            run.order = [(kind, one) for kind, one in run.order if one.item_id not in run.gone]
            run.open_calls -= run.gone
        case item.ItemCompleted():
            _item(run, data, at)
        case item.ToolStarted():
            call = run.by_item.get(data.item_id)
            if call is not None and call.started_at is None:
                call.started_at = at
        case item.ToolResultSnapshot(final=True):
            _result(run, data, at)
        case item.CheckpointReached():
            if data.reason == "tool_batch" and not run.open_calls and data.scope is None:
                run.places.append(Place(placed.sequence, len(messages_of(run)), at))
        case item.UsageRecorded():
            _use(run, data)
        case item.RuntimeEvent():
            _runtime_event(run, data)
        case turn_events.TurnSuperseded():
            run.superseded_by = data.by_turn_id
        case _ if isinstance(data, turn_events.TERMINAL):
            _end(run, data, at)


def _queued(run: Run, data: turn_events.TurnQueued, placed: Placed) -> None:
    run.created_at, run.first_sequence = placed.at, placed.sequence
    run.input, run.forked_from, run.regenerates = data.input, data.forked_from, data.regenerates
    run.idempotency_key = data.idempotency_key
    metadata = data.metadata or {}
    said, copied = metadata.get("agentos"), metadata.get("copied_from")
    run.extra = said if isinstance(said, dict) else {}
    run.copied_from = copied.get("session") if isinstance(copied, dict) else None
    run.session_state = run.extra.get("session_state")
    user = run.extra.get("user_id")
    run.user_id = user if isinstance(user, str) else run.user_id


def _ask(run: Run, requirements: list[Requirement]) -> None:
    run.requirements = list(requirements)
    for requirement in requirements:
        call = _call_of(run, requirement)
        if call is not None:
            call.requirement = requirement


def _answer(run: Run, tool_call_id: str, answer: Answer) -> None:
    run.requirements = [
        msgspec.structs.replace(r, answer=answer) if r.tool_call_id == tool_call_id else r for r in run.requirements
    ]
    for requirement in run.requirements:
        call = _call_of(run, requirement)
        if call is not None:
            call.requirement = requirement


def _call_of(run: Run, requirement: Requirement) -> Call | None:
    if requirement.item_id is not None:
        return run.by_item.get(requirement.item_id)
    mine = [call for call in run.by_item.values() if call.tool_call_id == requirement.tool_call_id]
    return mine[-1] if mine else None


def _item(run: Run, data: item.ItemCompleted, at: Micros) -> None:
    if data.item_id in run.gone:
        return
    if data.kind == "text":
        run.order.append(("text", Text(data.item_id, data.message_id, data.text or "", data.scope, at)))
    elif data.kind == "tool_call" and data.tool_call is not None:
        call = Call(
            item_id=data.item_id,
            tool_call_id=data.tool_call.tool_call_id,
            name=data.tool_call.name,
            arguments=data.tool_call.arguments,
            called_at=at,
            scope=data.scope,
        )
        run.by_item[data.item_id] = call
        run.open_calls.add(data.item_id)
        run.order.append(("call", call))


def _result(run: Run, data: item.ToolResultSnapshot, at: Micros) -> None:
    run.open_calls.discard(data.item_id)
    call = run.by_item.get(data.item_id)
    if call is not None and call.ended_at is None:
        call.result, call.is_error, call.ended_at = data.output, data.is_error, at
        run.order.append(("result", call))


def _use(run: Run, data: item.UsageRecorded) -> None:
    counted = run.usage.setdefault(data.model, {"input_tokens": 0, "output_tokens": 0})
    counted["input_tokens"] += data.input_tokens
    counted["output_tokens"] += data.output_tokens


def _runtime_event(run: Run, data: item.RuntimeEvent) -> None:
    payload = data.payload
    if data.scope is None:
        if data.name == "SessionState":
            run.session_state = payload
        elif data.name == "RunMetrics" and isinstance(payload, dict):
            run.metrics = payload
        elif data.name == "StepCompleted":
            _step(run, payload)


def _end(run: Run, data: Any, at: Micros) -> None:
    run.cancelled_while = {"queued": "PENDING", "running": "EXECUTING", "paused": "PAUSED"}.get(run.status)
    run.ended_at = at
    match data:
        case turn_events.TurnCompleted():
            run.status, run.output = "completed", data.output
        case turn_events.TurnFailed():
            run.status, run.error = "failed", data.error
        case turn_events.TurnInterrupted():
            run.status = "interrupted"
        case turn_events.TurnCancelled():
            run.status = "cancelled"


def _step(run: Run, payload: Any) -> None:
    """A step has ended: what it gave."""
    if isinstance(payload, dict):
        response = payload.get("step_response")
        run.steps.append(
            response
            if isinstance(response, dict)
            else {name: payload[name] for name in ("step_name", "step_id", "content") if name in payload}
        )
