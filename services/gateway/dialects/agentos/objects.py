"""A run as AgentOS's objects: the full one, the rows of lists, its checkpoints."""

from datetime import UTC, datetime
from typing import Any

from domain.ids import Micros
from services.gateway.dialects.agentos.calls import as_text, paused_content, seconds
from services.gateway.dialects.agentos.fold import requirements_of, tools_of, workflow_pause
from services.gateway.dialects.agentos.messages import messages_of
from services.gateway.dialects.agentos.outcome import member_runs, metadata_of, metrics_of
from services.gateway.dialects.agentos.run import Run

Object = dict[str, Any]

_PREVIEW = 120


def iso(at: Micros) -> str:
    """As lists and sessions have times."""
    return datetime.fromtimestamp(at // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def content_of(run: Run) -> str | None:
    """What the run says of itself, whatever became of it."""
    if run.status == "failed":
        return "" if run.error is None else run.error.message
    if run.waits and run.component.kind != "workflow":
        return paused_content(run.component.kind, run.requirements)
    content = run.content()
    if run.wire_status == "CANCELLED" and not content:
        return f"Run {run.run_id} was cancelled"
    return content if run.terminal else None


def run_object(run: Run, events: list[Object] | None = None) -> Object:
    """The full object. `events` are what a poll adds."""
    shown = _workflow(run) if run.component.kind == "workflow" else _agent_or_team(run)
    if not shown.get("tools") and (events is not None or run.status == "failed"):
        shown.pop("tools", None)
    shown |= _ancestry(run)
    if run.wire_status == "CANCELLED" and run.cancelled_while is not None:
        shown["cancellation_stage"] = run.cancelled_while
    if events is not None:
        shown["events"] = events
    return {name: value for name, value in shown.items() if value is not None}


def refused(run: Run) -> bool:
    """A guardrail did not let its input through: it has no messages."""
    return run.status == "failed" and run.error is not None and run.error.code == "input_refused"


def _agent_or_team(run: Run) -> Object:
    model = run.component.model
    names = run.component.names()
    shown: Object = {
        "run_id": run.run_id,
        **names,
        "session_id": run.session_id,
        "user_id": run.user_id,
        "content": content_of(run),
        "content_type": "str",
        "model": model.get("id") or next(iter(run.usage), ""),
        "model_provider": model.get("provider", ""),
        "created_at": seconds(run.created_at),
        "status": run.wire_status,
        "metrics": metrics_of(run),
        "metadata": run.extra.get("metadata"),
        "input": {"input_content": run.input_text},
    }
    stopped_team = run.component.kind == "team" and run.wire_status == "CANCELLED"
    if run.component.kind == "agent" or run.requirements or stopped_team:
        shown["session_state"] = run.session_state or {}
    if run.started_at is not None and not refused(run):
        shown["messages"] = messages_of(run)
        shown["tools"] = tools_of(run)
    if run.places:
        shown["last_checkpoint_at_message_index"] = run.places[-1].messages
    if run.requirements:
        shown["requirements"] = requirements_of(run)
    if run.component.kind == "team":
        shown["member_responses"] = member_runs(run)
    return shown


def _workflow(run: Run) -> Object:
    shown: Object = {
        "input": run.input_text,
        "content": content_of(run),
        "content_type": "str",
        **run.component.names(),
        "run_id": run.run_id,
        "session_id": run.session_id,
        "user_id": run.user_id,
        "created_at": seconds(run.created_at),
        "status": run.wire_status,
        "metadata": metadata_of(run),
        "step_results": list(run.steps),
        "step_executor_runs": member_runs(run),
        "metrics": metrics_of(run),
    }
    if run.status == "paused":
        shown |= workflow_pause(run)
    elif run.requirements:
        shown["step_requirements"] = workflow_pause(run)["step_requirements"]
    return shown


def _ancestry(run: Run) -> Object:
    """Where a fork or a regeneration comes from."""
    source = run.extra.get("forked_from_run_id")
    if source is None and run.forked_from is not None:
        source = run.forked_from.turn_id
    shown: Object = {} if run.copied_from is None else {"forked_from_session_id": run.copied_from}
    if source is None:
        return shown
    shown["forked_from_run_id"] = source
    if "forked_from_message_index" in run.extra:
        shown["forked_from_message_index"] = run.extra["forked_from_message_index"]
    if run.regenerates is not None or run.extra.get("regenerated"):
        shown["regenerated_from"] = source
    return shown


def run_row(run: Run) -> Object:
    """One row of a list: every key is there."""
    kind = run.component.kind
    shown: Object = {
        "run_id": run.run_id,
        f"{kind}_id": run.component.agent_id,
        "user_id": run.user_id or (None if kind == "team" else ""),
        "status": run.wire_status,
        "cancellation_stage": run.cancelled_while if run.wire_status == "CANCELLED" else None,
        "run_input": run.input_text,
        "content": content_of(run),
        "metrics": metrics_of(run),
        "events": None,
        "created_at": iso(run.created_at),
        "reasoning_content": "",
        "reasoning_steps": [],
        "reasoning_messages": [],
        "references": [],
        "citations": None,
        "response_audio": None,
        **{name: [] for name in ("images", "videos", "audio", "files")},
    }
    return shown | (_workflow_row(run) if kind == "workflow" else _conversation_row(run))


def _workflow_row(run: Run) -> Object:
    where = workflow_pause(run) if run.status == "paused" else {}
    return {
        "content_type": "str",
        "step_results": list(run.steps),
        "step_executor_runs": member_runs(run),
        **{name: where.get(name) for name in ("paused_step_index", "paused_step_name", "pause_kind")},
        "step_requirements": where.get("step_requirements"),
    }


def _conversation_row(run: Run) -> Object:
    ancestry = _ancestry(run)
    shown: Object = {
        "parent_run_id": "",
        "run_response_format": "text",
        "messages": messages_of(run) if run.started_at is not None else None,
        "tools": tools_of(run) or None,
        "session_state": run.session_state or (None if run.component.kind == "team" else {}),
        "input_media": {"images": [], "videos": [], "audios": [], "files": []},
        "followups": None,
        "forked_from_run_id": ancestry.get("forked_from_run_id"),
        "forked_from_message_index": ancestry.get("forked_from_message_index"),
        "forked_from_session_id": ancestry.get("forked_from_session_id"),
        "regenerated_from": ancestry.get("regenerated_from"),
        "last_checkpoint_at_message_index": run.places[-1].messages if run.places else None,
    }
    return shown | ({"metadata": run.extra.get("metadata")} if run.component.kind == "agent" else {})


def preview_row(run: Run) -> Object:
    """The light form of a row."""
    content = content_of(run)
    return {
        "run_id": run.run_id,
        "parent_run_id": "",
        f"{run.component.kind}_id": run.component.agent_id,
        "user_id": run.user_id or "",
        "status": run.wire_status,
        "run_input": run.input_text,
        "content_preview": None if content is None else preview(content),
        "created_at": iso(run.created_at),
    }


def preview(text: str) -> str:
    """At most 120 characters, on one line."""
    flat = text.replace("\n", " ").strip()
    return flat if len(flat) <= _PREVIEW else flat[: _PREVIEW - 1] + "..."


def checkpoints(run: Run) -> list[Object]:
    """The places one can continue from: after each batch of tools, and the end."""
    messages = messages_of(run)
    entries: list[tuple[int, str, str, Micros]] = [
        *((p.messages, "RUNNING", "checkpoint", p.at) for p in run.places if p.messages < len(messages)),
        (len(messages), run.wire_status, "end", run.ended_at or run.created_at),
    ]
    return [
        _checkpoint(run, messages, index, status, reason, at, str(ordinal))
        for ordinal, (index, status, reason, at) in enumerate(entries, 1)
    ]


def snapshot(run: Run, message_index: int) -> Object:
    """The run with its first messages only; content and status are those of its end."""
    messages = messages_of(run)
    kept = messages[:message_index]
    place = next((one for one in run.places if one.messages == message_index), None)
    status = "RUNNING" if place is not None and message_index < len(messages) else run.wire_status
    at = run.created_at if place is None else place.at
    shown = run_object(run, [])
    shown["messages"] = kept
    calls = {one["tool_call_id"] for one in kept if one["role"] == "tool"}
    shown["tools"] = [tool for tool in shown.get("tools", []) if tool["tool_call_id"] in calls]
    places = [one.messages for one in run.places if one.messages <= message_index]
    if places:
        shown["last_checkpoint_at_message_index"] = places[-1]
    else:
        shown.pop("last_checkpoint_at_message_index", None)
    entry = _checkpoint(run, messages, message_index, status, "snapshot", at, "1")
    return {"checkpoint": entry, "snapshot": shown}


def _checkpoint(
    run: Run, messages: list[Object], index: int, status: str, reason: str, at: Micros, ordinal: str
) -> Object:
    message = messages[index - 1] if 0 < index <= len(messages) else None
    content = None if message is None else message.get("content")
    entry: Object = {
        "checkpoint_id": ordinal,
        "run_id": run.run_id,
        "session_id": run.session_id,
        "message_index": index,
        "continue_from": index,
        "status": status,
        "reason": reason,
        "created_at": seconds(at),
        "message_id": None if message is None else message["id"],
        "message_role": None if message is None else message["role"],
        "message_preview": None if content is None else preview(as_text(content)),
        "is_latest": index == len(messages),
    }
    return entry
