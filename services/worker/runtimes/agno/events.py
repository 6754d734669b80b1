"""Agno's events as runtime events: their names as they are, their own fields as payload.

What items, tools and the turn's own life tell already is not repeated (docs/agentos.md)."""

from typing import Any

import msgspec

from domain.texts import made_safe

_BASE = frozenset(
    {
        *("created_at", "event", "agent_id", "agent_name", "team_id", "team_name", "workflow_id", "workflow_name"),
        *("run_id", "session_id", "parent_run_id", "nested_depth", "event_index"),
    }
)
_NESTED = ("workflow_run_id", "step_id", "step_name", "step_index")
_TOLD = frozenset(
    {
        *("RunContent", "ToolCallStarted", "ToolCallCompleted", "ToolCallError"),
        *("ModelRequestStarted", "ModelRequestCompleted"),
    }
)
_LIFE = frozenset(
    {
        *("RunStarted", "RunContinued", "RunIntermediateContent", "RunContentCompleted", "RunCompleted", "RunPaused"),
        *("RunError", "RunCancelled"),
        *("WorkflowStarted", "WorkflowCompleted", "WorkflowPaused", "WorkflowError", "WorkflowCancelled"),
    }
)
_TEXT = 2000
"""Code points of a string in a payload, unless all of it fits …"""

_BYTES = 15 * 1024
"""… into this: a runtime event has 16 KiB."""


def prefixed(kind: str, name: str) -> str:
    """The name that an event has for an agent or a team."""
    return f"Team{name}" if kind == "team" else name


def step(event: Any, *, own: bool, base: dict[str, Any]) -> tuple[str, Any] | None:
    """Name and payload; None for what is told otherwise."""
    name = getattr(event, "event", None)
    if not isinstance(name, str) or not name:
        return None
    plain = name.removeprefix("Team")
    if plain in _TOLD or (own and plain in _LIFE):
        return None
    fields = event.to_dict() if hasattr(event, "to_dict") else {}
    payload = {key: value for key, value in fields.items() if key not in _BASE and value is not None}
    if own and "step_id" in fields:
        payload["step_id"] = fields["step_id"]
    if not own:
        for key in _NESTED:
            payload.pop(key, None)
        # Bodies of a member's run are told by its items.
        for key in ("messages", "events", "member_responses", "tools", "requirements", "input", "references"):
            payload.pop(key, None)
        if plain == "RunStarted":
            payload = {**base, **payload}
    return name, fitting(payload)


def finished_call(event: Any) -> Any:
    """The tool execution that an event says is over."""
    name = str(getattr(event, "event", "")).removeprefix("Team")
    return getattr(event, "tool", None) if name == "ToolCallCompleted" else None


def is_json(value: Any) -> bool:
    """It can be kept as it is."""
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError):
        return False
    return True


def fitting(payload: Any) -> Any:
    """As JSON data of at most 16 KiB: long texts are cut, then nested values are left out."""
    made = _plain(payload)
    if len(msgspec.json.encode(made)) <= _BYTES:
        return made
    made = _plain(payload, _TEXT)
    if len(msgspec.json.encode(made)) <= _BYTES or not isinstance(made, dict):
        return made
    return {key: value for key, value in made.items() if not isinstance(value, dict | list)}


def _plain(value: Any, longest: int | None = None) -> Any:
    if isinstance(value, dict):
        return {made_safe(str(key)): _plain(inner, longest) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner, longest) for inner in value]
    if hasattr(value, "value") and isinstance(value.value, str):
        return value.value  # an enumeration's member
    if isinstance(value, str):
        return made_safe(value if longest is None else value[:longest])
    if value is None or isinstance(value, bool | int | float):
        return value
    if hasattr(value, "to_dict"):
        return _plain(value.to_dict(), longest)
    if hasattr(value, "model_dump"):
        return _plain(value.model_dump(mode="json"), longest)
    return made_safe(str(value))
