"""A copy of a user's component for one execution: its own store, models that report, members and steps that are runs of
the conductor."""

import asyncio
import copy
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import structlog
from agno.agent import Agent
from agno.models.base import Model
from agno.team import Team
from agno.utils.team import get_member_id
from agno.workflow import Condition, Loop, Parallel, Router, Step, Steps, Workflow
from agno.workflow.agent import WorkflowAgent

from domain.parts import Scope
from services.worker.runtimes.agno.declared import is_idempotent
from services.worker.runtimes.agno.models import observed
from services.worker.runtimes.agno.runs import Conductor, Run, current, digest, in_run
from services.worker.runtimes.agno.store import OUTPUTS, Kind

log = structlog.get_logger("turnlog.worker")

_MODELS = ("model", "output_model")
_INNER: dict[type, tuple[str, ...]] = {
    Steps: ("steps",),
    Loop: ("steps",),
    Parallel: ("steps",),
    Condition: ("steps", "else_steps"),
    Router: ("choices",),
}
_OUTPUTS = tuple(OUTPUTS.values())

_warned: set[int] = set()


def kind_of(component: Any) -> Kind | None:
    """What it is; None for what cannot be run."""
    if isinstance(component, Workflow):
        return "workflow"
    if isinstance(component, Team):
        return "team"
    return "agent" if isinstance(component, Agent) else None


def copied(component: Any, conductor: Conductor, store: Any) -> Any:
    """The turn's own component."""
    if isinstance(component, Workflow):
        return _workflow(component, conductor, store)
    return _actor(component, conductor, store)


def warn_of_stores(component: Any) -> None:
    """Say once that a store of the user's is not used."""
    if id(component) not in _warned and any(getattr(part, "db", None) is not None for part in parts(component)):
        _warned.add(id(component))
        log.warning("agno.db_ignored", component=getattr(component, "id", None) or getattr(component, "name", None))


def parts(component: Any) -> list[Any]:
    """The component and everything in it that runs, as far as it is known before it runs."""
    found: list[Any] = [component]
    if isinstance(component, Team) and isinstance(component.members, list):
        for member in component.members:
            found += parts(member)
    elif isinstance(component, Workflow):
        steps = component.steps.steps if isinstance(component.steps, Steps) else component.steps
        for step in steps if isinstance(steps, list) else []:
            found += parts(step)
    elif isinstance(component, Step):
        for inner in (component.agent, component.team, component.workflow):
            found += [] if inner is None else parts(inner)
    elif type(component) in _INNER:
        for name in _INNER[type(component)]:
            for step in getattr(component, name) or []:
                found += parts(step)
    elif isinstance(component, list):
        for step in component:
            found += parts(step)
    return found


def _actor(component: Any, conductor: Conductor, store: Any) -> Any:
    """An agent or a team."""
    made = component.deep_copy()
    made.db = store
    made.telemetry = False
    made.cache_session = False
    made.store_events = False
    # What the turn keeps is cut and stored by the log; its own rows must be whole to go on from.
    made.store_tool_messages = True
    for name in _MODELS:
        model = getattr(made, name, None)
        if isinstance(model, Model):
            setattr(made, name, observed(model))
    if isinstance(made.reasoning_agent, Agent):
        # It has no tools: Agno takes models only that reason by themselves.
        made.reasoning_agent.db = None
    fallbacks = getattr(made, "fallback_config", None)
    if fallbacks is not None:
        made.fallback_config = copy.copy(fallbacks)
        for name in ("on_error", "on_rate_limit", "on_context_overflow"):
            models = getattr(fallbacks, name, None) or []
            setattr(made.fallback_config, name, [observed(m) if isinstance(m, Model) else m for m in models])
    if isinstance(made, Team):
        made.store_member_responses = True
        if isinstance(component.members, list):
            made.members = [_member(member, conductor, store, {}) for member in component.members]
        elif callable(component.members):
            made.members = _members(component.members, conductor, store)
    return made


def _members(factory: Callable[..., Any], conductor: Conductor, store: Any) -> Callable[..., Any]:
    """Members that are only known when the team runs."""
    import functools

    @functools.wraps(factory)
    def members(*args: Any, **rest: Any) -> Any:
        return [_member(member, conductor, store, {}) for member in factory(*args, **rest)]

    return members


def _member(member: Any, conductor: Conductor, store: Any, base: dict[str, Any]) -> Any:
    """A member, or what a step runs: each of its runs is told with a scope of its own."""
    kind = kind_of(member)
    made = copied(member, conductor, store) if kind is not None else member
    if kind is None:
        return made
    conductor.strip(member, made)
    start, go_on = made.arun, made.acontinue_run
    name = name_of(made)

    def arun(input: Any = None, **rest: Any) -> Any:
        parent = current.get()
        if parent is None:
            return start(input=input, **rest)
        key = conductor.key_of(parent, f"{name}#{digest(input)}")
        rest["run_id"] = conductor.run_id_of(key)
        run = _inner_run(conductor, parent, key, rest["run_id"], kind, made, base)
        return _observed(run, rest.pop("stream", None), lambda: start(input=input, **_told(rest, kind)))

    def acontinue_run(run_response: Any = None, **rest: Any) -> Any:
        parent = current.get()
        if parent is None:
            return go_on(run_response, **rest)
        run_id = rest.get("run_id") if run_response is None else run_response.run_id
        key = conductor.key_of(parent, f"{name}~{run_id}")
        run = _inner_run(conductor, parent, key, str(run_id), kind, made, base)
        return _observed(run, rest.pop("stream", None), lambda: go_on(run_response, **_told(rest, kind)))

    made.arun, made.acontinue_run = arun, acontinue_run
    return made


def name_of(component: Any) -> str:
    """What AgentOS calls it."""
    known = component.id or (get_member_id(component) if isinstance(component, Agent | Team) else component.name)
    return str(known or type(component).__name__)


def _told(rest: dict[str, Any], kind: Kind) -> dict[str, Any]:
    rest["stream"] = rest["stream_events"] = True
    if kind != "workflow":
        rest["yield_run_output"] = True
    return rest


def _inner_run(
    conductor: Conductor, parent: Run, key: str, run_id: str, kind: Kind, made: Any, base: dict[str, Any]
) -> Run:
    depth = (0 if parent.scope is None else parent.scope.depth) + 1
    scope = Scope(component=kind, id=name_of(made), run_id=run_id, parent_run_id=parent.run_id, depth=depth)
    told = {f"{kind}_name": made.name, "nested_depth": depth, **base}
    if parent.kind == "workflow":
        told["workflow_run_id"] = parent.run_id
    return Run(conductor, key, run_id, scope, told, kind)


def _observed(run: Run, streams: Any, start: Callable[[], Any]) -> Any:
    events = stream(run, start)
    return events if streams else _last(events)


async def stream(run: Run, start: Callable[[], Any]) -> AsyncIterator[Any]:
    """The run's events, each told as soon as it is there and before anybody else acts on it."""
    task = asyncio.current_task()
    tasks = run.conductor.tasks
    if task is not None and not run.own and task not in tasks:
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    made = in_run(run, start)
    if hasattr(made, "__await__"):
        made = await made
    try:
        while True:
            token = current.set(run)
            try:
                event = await anext(made)
            except StopAsyncIteration:
                return
            finally:
                current.reset(token)
            if isinstance(event, _OUTPUTS):
                run.output = event
            elif getattr(event, "run_id", None) == run.run_id:
                await run.report(event)
            yield event
    finally:
        await made.aclose()


async def _last(events: AsyncIterator[Any]) -> Any:
    """The output of a run that its caller does not want to watch."""
    output: Any = None
    error: Any = None
    async for event in events:
        if isinstance(event, _OUTPUTS):
            output = event
        elif str(getattr(event, "event", "")).endswith("RunError"):
            error = event
    if output is None:
        raise RuntimeError(str(getattr(error, "content", None) or "The run ended without a result."))
    return output


def _workflow(component: Workflow, conductor: Conductor, store: Any) -> Workflow:
    made = copy.copy(component)
    made.db = store
    made.telemetry = False
    made.store_events = False
    made.store_executor_outputs = True
    made.session_state = copy.deepcopy(component.session_state)
    if isinstance(component.agent, WorkflowAgent):
        made.agent = _member(component.agent, conductor, store, {"workflow_id": component.id})
    made.steps = _steps(component.steps, made, conductor, store, "")
    return made


def _steps(steps: Any, workflow: Any, conductor: Conductor, store: Any, place: str) -> Any:
    if isinstance(steps, Steps):
        return _step(steps, workflow, conductor, store, place, 0)
    if isinstance(steps, list):
        return [_step(s, workflow, conductor, store, f"{place}/{n}", n) for n, s in enumerate(steps)]
    return steps


def _step(step: Any, workflow: Any, conductor: Conductor, store: Any, place: str, index: int) -> Any:
    if type(step) in _INNER:
        made = copy.copy(step)
        for name in _INNER[type(step)]:
            inner = getattr(step, name)
            if inner:
                setattr(made, name, _steps(list(inner), workflow, conductor, store, f"{place}.{name}"))
        if isinstance(made, Router):
            _choose_copies(made, step, workflow, conductor, store, place)
        elif isinstance(made, Parallel):
            _in_order(made)
        return made
    if isinstance(step, list):
        return _steps(step, workflow, conductor, store, place)
    if isinstance(step, Agent | Team):
        which: dict[str, Any] = {"team" if isinstance(step, Team) else "agent": step}
        step = Step(name=step.name, **which)
    elif isinstance(step, Workflow):
        step = Step(name=step.name, workflow=step)
    elif callable(step) and not isinstance(step, Step):
        step = Step(name=getattr(step, "__name__", "custom_function"), executor=step)
    if not isinstance(step, Step):
        return step
    made_step = copy.copy(step)
    # Agno makes these ids when a process loads the module; a turn goes on in another one.
    made_step.step_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{workflow.id}{place}"))
    base = {
        "workflow_id": workflow.id,
        "step_id": made_step.step_id,
        "step_name": step.name,
        "step_index": index,
    }
    for name in ("agent", "team", "workflow"):
        inner = getattr(step, name)
        if inner is not None:
            setattr(made_step, name, _member(inner, conductor, store, base))
    made_step._set_active_executor()
    if any(is_idempotent(one) for one in (step, step.executor, step.agent, step.team, step.workflow)):
        conductor.idempotent_steps.add(made_step.step_id)
    return made_step


def _choose_copies(made: Router, router: Router, workflow: Any, conductor: Conductor, store: Any, place: str) -> None:
    """A selector may return the user's own steps, also such as are no choices: their copies run."""
    known = {id(one): mine for one, mine in zip(router.choices or [], made.choices or [], strict=False)}
    resolve = made._resolve_selector_result

    def resolved(result: Any) -> list[Any]:
        return [copy_of(one) for one in resolve(result)]

    def copy_of(step: Any) -> Any:
        if any(step is mine for mine in made.steps or []):
            return step
        if id(step) not in known:
            index = len(known)
            known[id(step)] = _step(step, workflow, conductor, store, f"{place}.chosen/{step.name or index}", index)
        return known[id(step)]

    vars(made)["_resolve_selector_result"] = resolved


def _in_order(made: Parallel) -> None:
    """Streamed, Agno puts outputs together as they come. The next step's input must not depend on who was first: by it
    another attempt finds what the log has of that step."""
    places: dict[Any, int] = {}
    for place, step in enumerate(made.steps or []):
        for inner in parts(step):
            places.setdefault(getattr(inner, "name", None), place)
    together = made._aggregate_results

    def aggregate(step_outputs: list[Any]) -> Any:
        step_outputs.sort(key=lambda output: places.get(output.step_name, len(places)))
        return together(step_outputs)

    vars(made)["_aggregate_results"] = aggregate
