"""What clients may know of a component: its model, tools, members and steps. Never a prompt."""

from typing import Any

from agno.models.base import Model
from agno.tools import Toolkit
from agno.tools.function import Function
from agno.utils.team import get_member_id

from services.worker.runtimes.agno.events import fitting
from services.worker.runtimes.agno.store import Kind

_MOST_TOOLS = 100


def details(component: Any, kind: Kind, agent_id: str) -> dict[str, Any]:
    """JSON data of a few KiB; what is only known when the component runs is left out."""
    made: dict[str, Any] = {"id": component.id or agent_id, "name": component.name or agent_id}
    if getattr(component, "role", None):
        made["role"] = component.role
    if component.description:
        made["description"] = component.description
    if kind == "workflow":
        made["steps"] = [_step(step) for step in _listed(getattr(component.steps, "steps", component.steps))]
        return _plain(made)
    if isinstance(component.model, Model):
        model = component.model
        made["model"] = {"id": model.id, "name": model.name, "provider": model.provider}
    made["tools"] = _tools(component.tools)
    made["add_history_to_context"] = bool(component.add_history_to_context)
    made["reasoning"] = bool(getattr(component, "reasoning", False))
    if getattr(component, "checkpoint", None):
        made["checkpoint"] = component.checkpoint
    if kind == "team":
        mode = getattr(component, "mode", None)
        made["mode"] = getattr(mode, "value", mode) or "coordinate"
        made["members"] = [_member(member) for member in _listed(component.members)]
    return _plain(made)


def _member(member: Any) -> dict[str, Any]:
    kind: Kind = "team" if hasattr(member, "members") else "agent"
    return {"component": kind, **details(member, kind, get_member_id(member) or "")}


def _step(step: Any) -> dict[str, Any]:
    name = getattr(step, "name", None) or getattr(step, "__name__", None) or type(step).__name__
    kind = type(step).__name__ if type(step).__module__.startswith("agno.workflow") else "Step"
    return {"name": str(name), "type": kind}


def _tools(tools: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for tool in _listed(tools):
        if isinstance(tool, Toolkit):
            found += [_function(function) for function in {**tool.functions, **tool.async_functions}.values()]
        elif isinstance(tool, Function):
            found.append(_function(tool))
        elif callable(tool):
            found.append(_function(Function.from_callable(tool)))
        elif isinstance(tool, dict):
            found.append({"name": str(tool.get("name") or tool.get("type") or "tool")})
    return found[:_MOST_TOOLS]


def _function(function: Function) -> dict[str, Any]:
    made = function.model_copy(deep=True)
    if made.entrypoint is not None and not made.skip_entrypoint_processing:
        made.process_entrypoint()
    told: dict[str, Any] = {"name": made.name, "description": made.description, "parameters": made.parameters}
    if made.requires_confirmation:
        told["requires_confirmation"] = True
    if made.external_execution:
        told["external_execution"] = True
    return told


def _listed(found: Any) -> list[Any]:
    return list(found) if isinstance(found, list | tuple) else []


def _plain(made: dict[str, Any]) -> dict[str, Any]:
    told = fitting(made)
    return told if isinstance(told, dict) else {}
