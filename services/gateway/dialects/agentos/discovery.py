"""What can be run here, as AgentOS describes it."""

from typing import Any

from services.gateway.dialects.agentos.component import Component

Object = dict[str, Any]

DB = "turnlog"
"""There is one store, and it is not a component's."""

CONTRACT = "3.1.10"
"""The version of agno whose contract is followed."""


def summary(component: Component) -> Object:
    """In GET /config."""
    shown: Object = {"id": component.agent_id, "name": component.name, "db_id": DB, "sandboxed": False}
    if component.model:
        shown["model"] = {"id": component.model.get("id", ""), "provider": component.model.get("provider", "")}
    if component.kind == "workflow":
        shown |= {"is_component": False, "is_factory": False}
    for name in ("mode", "description"):
        if component.facts.get(name) is not None:
            shown[name] = component.facts[name]
    return shown


def described(component: Component, *, full: bool) -> Object:
    """One component; workflows have their steps only where they are asked for themselves."""
    facts = component.facts
    if component.kind == "workflow":
        shown = _base(component) | {"is_factory": False, "is_component": False, "sandboxed": False}
        if full:
            shown |= {"steps": facts.get("steps", []), "workflow_agent": bool(facts.get("workflow_agent"))}
        return shown
    shown = _base(component) | {
        "sessions": {"session_table": "sessions"},
        "reasoning": {"reasoning": bool(facts.get("reasoning"))},
        "is_component": False,
        "sandboxed": False,
    }
    if component.kind == "agent":
        shown |= {"filesystem": False, "is_factory": False}
    else:
        shown |= {
            "mode": facts.get("mode", "coordinate"),
            "streaming": {"stream_member_events": True},
            "members": [_member(one) for one in facts.get("members", []) if isinstance(one, dict)],
            "is_factory": False,
        }
    return shown | _model_and_tools(facts)


def _base(component: Component) -> Object:
    shown: Object = {"id": component.agent_id, "name": component.name, "db_id": DB}
    if component.facts.get("description") is not None:
        shown["description"] = component.facts["description"]
    return shown


def _model_and_tools(facts: Object) -> Object:
    shown: Object = {}
    model = facts.get("model")
    if isinstance(model, dict):
        shown["model"] = {
            "name": model.get("name", ""),
            "model": model.get("id", ""),
            "provider": model.get("provider", ""),
        }
    if facts.get("tools"):
        shown["tools"] = {"tools": facts["tools"]}
    return shown


def _member(facts: Object) -> Object:
    named = {name: facts[name] for name in ("id", "name", "role", "mode", "description") if facts.get(name) is not None}
    shown = named | _model_and_tools(facts) | {"filesystem": False, "is_factory": False}
    shown |= {"is_component": False, "sandboxed": False, "reasoning": {"reasoning": bool(facts.get("reasoning"))}}
    if facts.get("members"):
        shown["members"] = [_member(one) for one in facts["members"] if isinstance(one, dict)]
    return shown


def config(name: str, components: list[Component]) -> Object:
    """GET /config."""
    db: Object = {"db_id": DB, "domain_config": {"display_name": DB}, "tables": []}
    models: list[Object] = []
    for component in components:
        model = {"id": component.model.get("id", ""), "provider": component.model.get("provider", "")}
        if component.model and model not in models:
            models.append(model)
    shown: Object = {
        "os_id": name,
        "available_models": models,
        "databases": [DB],
        "session": {"dbs": [{**db, "tables": ["sessions"]}]},
        **{part: {"dbs": []} for part in ("metrics", "memory", "learning", "traces")},
        "knowledge": {"dbs": [], "knowledge_instances": []},
        "evals": {"dbs": [{**db, "tables": ["hooks"]}]},
        "filesystem": {"namespaces": []},
        "queue": {"durable": True, "queue_per_session": True},
        "interfaces": [],
        "company": None,
    }
    for part, kind in (("agents", "agent"), ("teams", "team"), ("workflows", "workflow")):
        shown[part] = [summary(component) for component in components if component.kind == kind]
    return shown


def info(name: str, version: str, components: list[Component], *, auth_off: bool) -> Object:
    """GET /info."""

    def count(kind: str) -> int:
        return sum(component.kind == kind for component in components)

    return {
        "os_id": name,
        "name": name,
        "os_version": version,
        "agno_version": CONTRACT,
        "agent_count": count("agent"),
        "team_count": count("team"),
        "workflow_count": count("workflow"),
        "mcp": {"enabled": False, "path": None, "oauth": None, "tool_run_endpoint": False},
        "auth_mode": "none" if auth_off else "jwt",
        "user_isolation": not auth_off,
    }
