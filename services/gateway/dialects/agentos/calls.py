"""Tool calls and questions as AgentOS shows them: tool objects, requirements, step requirements."""

import uuid
from typing import Any

import msgspec

from domain.clock import rfc3339
from domain.ids import Micros
from domain.parts import Requirement, Scope

_NAMESPACE = uuid.UUID("6f3c9d1e-6a0b-4d57-9c0b-3c1f5e0a7a11")


def seconds(at: Micros) -> int:
    """Epoch seconds, as runs and events have them."""
    return at // 1_000_000


class Call(msgspec.Struct, kw_only=True):
    """One tool call of a run, as far as its events tell."""

    item_id: str
    tool_call_id: str
    name: str
    arguments: dict[str, Any]
    called_at: Micros
    scope: Scope | None = None
    started_at: Micros | None = None
    ended_at: Micros | None = None
    result: str | None = None
    is_error: bool = False
    requirement: Requirement | None = None

    @property
    def speaker(self) -> str | None:
        return None if self.scope is None else self.scope.run_id

    def tool(self) -> dict[str, Any]:
        """The tool object; every key is always there."""
        return tool_object(
            tool_call_id=self.tool_call_id,
            name=self.name,
            arguments=self.arguments,
            created_at=self.called_at,
            requirement=self.requirement,
            error=self.is_error if self.ended_at is not None else None,
            result=self.result,
            metrics=self._metrics(),
        )

    def completed_text(self) -> str:
        """`name(a=b) completed in 0.0018s. `"""
        arguments = answered_arguments(self.arguments, self.requirement)
        said = ", ".join(f"{name}={value}" for name, value in arguments.items())
        took = ((self.ended_at or 0) - (self.started_at or 0)) / 1e6
        return f"{self.name}({said}) completed in {took:.4f}s. "

    def _metrics(self) -> dict[str, float] | None:
        if self.started_at is None or self.ended_at is None:
            return None
        start, end = self.started_at / 1e6, self.ended_at / 1e6
        return {"start_time": start, "end_time": end, "duration": (self.ended_at - self.started_at) / 1e6}


def answered_arguments(arguments: dict[str, Any], requirement: Requirement | None) -> dict[str, Any]:
    """The arguments with what people filled in."""
    answer = None if requirement is None else requirement.answer
    given = None if answer is None or requirement is None or requirement.kind == "external" else answer.arguments
    return arguments if given is None else {**arguments, **given}


def tool_object(
    *,
    tool_call_id: str,
    name: str,
    arguments: dict[str, Any],
    created_at: Micros,
    requirement: Requirement | None = None,
    error: bool | None = None,
    result: str | None = None,
    metrics: dict[str, float] | None = None,
) -> dict[str, Any]:
    """A tool object of AgentOS."""
    kind = None if requirement is None else requirement.kind
    answer = None if requirement is None else requirement.answer
    arguments = answered_arguments(arguments, requirement)
    if kind == "external" and result is None and answer is not None and answer.result is not None:
        result = as_text(answer.result)
    asked = requirement is not None and kind == "input"
    return {
        "tool_call_id": tool_call_id,
        "tool_name": name,
        "tool_args": arguments,
        "tool_call_error": error,
        "result": result,
        "metrics": metrics,
        "child_run_id": None,
        "stop_after_tool_call": False,
        "created_at": seconds(created_at),
        "requires_confirmation": True if kind == "approval" else None,
        "confirmed": answer.approved if answer is not None and kind == "approval" else None,
        "confirmation_note": answer.note if answer is not None else None,
        "requires_user_input": True if asked else None,
        "user_input_schema": input_schema(requirement, arguments) if requirement is not None and asked else None,
        "user_feedback_schema": None,
        "answered": True if asked and answer is not None else None,
        "external_execution_required": True if kind == "external" else None,
        "external_execution_silent": None,
        "approval_type": None,
        "approval_id": None,
        "parent_tool_call_id": None,
    }


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def input_schema(requirement: Requirement, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """The fields that are asked for; where the runtime named none, the arguments that the call has."""
    fields = [field for field in requirement.fields or () if isinstance(field, dict) and "name" in field]
    if not fields:
        return [
            {"name": name, "field_type": _type_of(value), "description": None, "value": value}
            for name, value in arguments.items()
        ]
    return [{**field, "value": arguments.get(field["name"], field.get("value"))} for field in fields]


def _type_of(value: Any) -> str:
    return {bool: "bool", int: "int", float: "float", str: "str", list: "list", dict: "dict"}.get(type(value), "str")


def extra(requirement: Requirement) -> dict[str, Any]:
    """What the runtime says of a question in AgentOS's own terms."""
    for field in requirement.fields or ():
        if isinstance(field, dict) and isinstance(field.get("agentos"), dict):
            found: dict[str, Any] = field["agentos"]
            return found
    return {}


def requirement_id(turn_id: str, requirement: Requirement) -> str:
    return str(uuid.uuid5(_NAMESPACE, f"{turn_id}/{requirement.item_id or ''}/{requirement.tool_call_id}"))


def requirement_object(turn_id: str, requirement: Requirement, asked_at: Micros, call: Call | None) -> dict[str, Any]:
    """A requirement of AgentOS; what has become of the call stands in it, too."""
    tool = tool_object(
        tool_call_id=requirement.tool_call_id,
        name=requirement.tool_name,
        arguments=requirement.arguments,
        created_at=asked_at if call is None else call.called_at,
        requirement=requirement,
        error=call.is_error if call is not None and call.ended_at is not None else None,
        result=None if call is None else call.result,
    )
    shown: dict[str, Any] = {
        "id": requirement_id(turn_id, requirement),
        "created_at": rfc3339(asked_at).replace("Z", "+00:00"),
        "tool_execution": tool,
    }
    answer = requirement.answer
    if answer is not None and requirement.kind == "approval":
        shown["confirmation"] = answer.approved
        shown["confirmation_note"] = answer.note
    if answer is not None and requirement.kind == "external" and answer.result is not None:
        shown["external_execution_result"] = as_text(answer.result)
    if requirement.kind == "input":
        shown["user_input_schema"] = tool["user_input_schema"]
    members = extra(requirement)
    shown |= {name: value for name, value in members.items() if name.startswith("member_")}
    return {name: value for name, value in shown.items() if value is not None}


def step_requirement(requirement: Requirement) -> dict[str, Any]:
    """A step requirement of AgentOS; the runtime's own object, with what people decided."""
    said = extra(requirement).get("step_requirement")
    shown: dict[str, Any] = {
        "step_id": requirement.tool_call_id,
        "step_name": requirement.tool_name,
        "requires_confirmation": requirement.kind == "approval",
        "confirmed": None,
        "requires_user_input": requirement.kind == "input",
        "user_input": None,
    }
    if isinstance(said, dict):
        shown |= said
    if requirement.answer is not None:
        shown |= requirement.answer.arguments or {}
        if requirement.answer.approved is not None:
            shown["confirmed"] = requirement.answer.approved
    return shown


def paused_content(kind: str, requirements: list[Requirement]) -> str:
    """What a paused run says."""
    kinds = {requirement.kind for requirement in requirements}
    if kind == "team":
        words = {"approval": "confirmation", "input": "user input", "external": "external execution"}
        lines = [
            f"- {extra(r).get('member_agent_name') or 'team'}: {r.tool_name} requires {words[r.kind]}"
            for r in requirements
        ]
        return "\n".join(["Team run paused. The following require input:", *lines])
    if kinds == {"external"}:
        return "I have tools to execute, but it needs external execution."
    named = [
        word
        for found, word in (("approval", "confirmation"), ("input", "user input"), ("external", "external execution"))
        if found in kinds
    ]
    if not named:
        return ""
    last = named.pop()
    listed = f"{', '.join(named)}{',' if len(named) > 1 else ''} or {last}" if named else last
    return f"I have tools to execute, but I need {listed}."
