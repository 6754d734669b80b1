"""What people decided, in the three shapes in which AgentOS's clients send it back: tools of agents, requirements of
teams, step requirements of workflows. Entries that are resolved already may be echoed."""

from typing import Any

from domain.parts import Answer, Requirement
from services.gateway.dialects.agentos.answers import Refused
from services.gateway.dialects.agentos.calls import answered_arguments, step_requirement
from services.gateway.dialects.agentos.component import Kind

FIELD: dict[Kind, str] = {"agent": "tools", "team": "requirements", "workflow": "step_requirements"}

_STEP_DECISIONS = ("confirmed", "user_input", "selected_choices", "rejection_feedback", "edited_output", "on_reject")

Entry = dict[str, Any]


def answers_of(kind: Kind, requirements: list[Requirement], entries: list[Entry]) -> dict[str, Answer]:
    """Tool call id -> answer, for those of the run's questions that the entries decide. Raises Refused."""
    found: dict[str, Answer] = {}
    for requirement in requirements:
        for entry in entries:
            answer = _answer(kind, requirement, entry)
            if answer is not None:
                found[requirement.tool_call_id] = answer
    return found


def open_names(requirements: list[Requirement], given: dict[str, Answer]) -> list[str]:
    """What would still be open."""
    return [r.tool_name for r in requirements if r.answer is None and r.tool_call_id not in given]


def check_shape(kind: Kind, entries: list[Entry]) -> None:
    """Raises Refused where an entry is none of this kind."""
    for entry in entries:
        inner = _tool_of(entry) if kind == "team" else entry
        named = (inner.get("step_id") or inner.get("step_name")) if kind == "workflow" else inner.get("tool_call_id")
        if not isinstance(named, str):
            key = "step_id" if kind == "workflow" else "tool_call_id"
            raise Refused(400, f"Invalid structure or content for {FIELD[kind]}: an entry has no {key}")


def _tool_of(entry: Entry) -> Entry:
    """A requirement's tool object, with what was decided on the requirement itself."""
    tool = entry.get("tool_execution")
    merged: Entry = dict(tool) if isinstance(tool, dict) else {}
    for name, into in (
        ("confirmation", "confirmed"),
        ("confirmation_note", "confirmation_note"),
        ("external_execution_result", "result"),
        ("user_input_schema", "user_input_schema"),
    ):
        if entry.get(name) is not None:
            merged[into] = entry[name]
    return merged


def _answer(kind: Kind, requirement: Requirement, entry: Entry) -> Answer | None:
    if kind == "workflow":
        return _step_answer(requirement, entry)
    tool = _tool_of(entry) if kind == "team" else entry
    if tool.get("tool_call_id") != requirement.tool_call_id:
        return None
    note = tool.get("confirmation_note")
    note = note if isinstance(note, str) and note else None
    confirmed = tool.get("confirmed")
    if requirement.kind == "approval":
        if not isinstance(confirmed, bool):
            return None
        return Answer(approved=confirmed, note=note, arguments=_changed(requirement, tool) if confirmed else None)
    if confirmed is False:
        return Answer(approved=False, note=note)
    if requirement.kind == "external":
        result = tool.get("result")
        return None if result is None else Answer(result=result)
    return _input_answer(requirement, tool)


def _changed(requirement: Requirement, tool: Entry) -> dict[str, Any] | None:
    """Arguments that whoever confirmed has edited."""
    said = tool.get("tool_args")
    before = answered_arguments(requirement.arguments, requirement)
    return said if isinstance(said, dict) and said != before else None


def _input_answer(requirement: Requirement, tool: Entry) -> Answer | None:
    schema = tool.get("user_input_schema")
    fields = [field for field in schema if isinstance(field, dict)] if isinstance(schema, list) else []
    values = {f["name"]: f.get("value") for f in fields if isinstance(f.get("name"), str)}
    said = tool.get("tool_args") if not fields else None
    if isinstance(said, dict):
        values = dict(said)
    complete = bool(values) and all(value is not None for value in values.values())
    if tool.get("answered") is not True and not complete:
        return None
    return Answer(arguments={**requirement.arguments, **{k: v for k, v in values.items() if v is not None}})


def _step_answer(requirement: Requirement, entry: Entry) -> Answer | None:
    shown = step_requirement(requirement)
    step_id, step_name = entry.get("step_id"), entry.get("step_name")
    if step_id is not None and step_id != shown.get("step_id"):
        return None
    if step_id is None and step_name != shown.get("step_name"):
        return None
    if not _decided({**shown, **entry}):
        return None
    changed = {name: entry[name] for name in entry if name != "step_input" and entry[name] != shown.get(name)}
    kept = {name: value for name, value in changed.items() if value is not None or name in _STEP_DECISIONS}
    if requirement.answer is not None and not kept:
        return requirement.answer
    confirmed = entry.get("confirmed")
    return Answer(approved=confirmed if isinstance(confirmed, bool) else True, arguments=kept or None)


def _decided(entry: Entry) -> bool:
    if entry.get("confirmed") is False:
        return True
    wanted = [
        (entry.get("requires_confirmation"), isinstance(entry.get("confirmed"), bool)),
        (entry.get("requires_output_review"), isinstance(entry.get("confirmed"), bool)),
        (entry.get("requires_user_input"), entry.get("user_input") is not None),
        (entry.get("requires_route_selection"), bool(entry.get("selected_choices"))),
    ]
    asked = [done for needed, done in wanted if needed]
    return all(asked) if asked else isinstance(entry.get("confirmed"), bool)
