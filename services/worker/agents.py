"""The agents of a worker: loaded from users' modules, recognised, and wrapped in the runtime that runs their kind."""

import inspect
import os
import re
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from domain.runtime import Runtime
from services.paths import UnloadableObject, load
from services.worker.hooks.declared import Hooked
from services.worker.hooks.hook import NO_HOOKS, DoubleHook, Hooks, resolved

DEMO = "services.worker.demo:agent"

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class LoadedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """One agent that this worker executes."""

    agent_id: str
    name: str
    runtime: Runtime
    component: Literal["agent", "team", "workflow"] = "agent"
    details: dict[str, Any] | None = None
    """What clients may know of it: model, tools, members, steps."""

    hooks: Hooks = NO_HOOKS


def load_agents(words: Sequence[str], model: str | None = None) -> list[LoadedAgent]:
    """The agents that `module:name` or `id=module:name` mean; the demonstration agent where there are none, on `model`
    where one is named. Raises UnloadableObject, one line that says why and what to do."""
    if not words:
        return [_loaded(f"demo={DEMO}", model)]
    agents = [_loaded(word, None) for word in words]
    seen: set[str] = set()
    for agent in agents:
        if agent.agent_id in seen:
            raise UnloadableObject(f"two agents have the id `{agent.agent_id}`: give one another, as id=module:name")
        seen.add(agent.agent_id)
    return agents


def _loaded(word: str, model: str | None) -> LoadedAgent:
    before, equals, after = word.partition("=")
    target = after if equals else word
    agent_id = before if equals else target.rpartition(":")[2].rpartition(".")[2]
    if _ID.fullmatch(agent_id) is None:
        raise UnloadableObject(f"`{agent_id}` cannot be an agent's id: letters, digits, - _ and . only")
    # A terminal's banner is not for a server's log.
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")
    found = load(target)
    declared = found if isinstance(found, Hooked) else Hooked(agent=found)
    found = declared.agent
    runtime = _runtime_of(target, agent_id, declared, model)
    return LoadedAgent(
        agent_id=agent_id,
        name=_name_of(found) or agent_id,
        runtime=runtime,
        component=getattr(runtime, "component", "agent"),
        details=getattr(runtime, "details", None),
        hooks=_hooks_of(target, declared, runtime),
    )


def _hooks_of(target: str, declared: Hooked, runtime: Runtime) -> Hooks:
    try:
        return resolved(declared, getattr(runtime, "hooks", NO_HOOKS))
    except DoubleHook as error:
        raise UnloadableObject(f"`{target}`: {error}") from error


def _runtime_of(target: str, agent_id: str, declared: Hooked, model: str | None) -> Runtime:
    found = declared.agent
    if inspect.isasyncgenfunction(found):
        from services.worker.runtimes.callable import CallableRuntime

        return CallableRuntime(found)
    # Imported late: who serves functions only does not pay two seconds for it.
    if type(found).__module__.partition(".")[0] == "pydantic_ai":
        from pydantic_ai import Agent

        if isinstance(found, Agent):
            from services.worker.runtimes.pydantic_ai import PydanticAIRuntime

            # A model's name is resolved now: its client takes seconds to import, and a missing key is told at once.
            named = model or (found.model if isinstance(found.model, str) else None)
            return PydanticAIRuntime(found, None if named is None else _model(named))
    if _is_of("agno", found):
        from services.worker.runtimes.agno import AgnoRuntime
        from services.worker.runtimes.agno.copies import kind_of

        if kind_of(found) is not None or "remote" in type(found).__module__:
            return AgnoRuntime(found, agent_id, hooks_in_background=declared.run_hooks_in_background)
    raise UnloadableObject(
        f"`{target}` is a {type(found).__name__}: neither an async generator function, nor a pydantic-ai Agent, nor an "
        "Agno Agent, Team or Workflow"
    )


def _is_of(package: str, found: Any) -> bool:
    """Its class, or one that it derives from, comes from that package."""
    return any(base.__module__.partition(".")[0] == package for base in type(found).__mro__)


def _model(name: str) -> Any:
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.models import infer_model

    try:
        return infer_model(name)
    except (UserError, ValueError, ImportError) as error:
        reason = " ".join(str(error).split())
        raise UnloadableObject(f"the model `{name}` cannot be used: {reason}") from error


def _name_of(found: Any) -> str | None:
    name = getattr(found, "name", None)
    return name if isinstance(name, str) and name else None
