"""The fold: a turn's frames in order -> the events of AgentOS, each with its `event_index`.

How many events a frame yields depends on the log alone, never on who watches or since when; every piece of a text that
may get lost with its attempt yields exactly one. So an event has the same index at every gateway, live, replayed and
after a restart. An attempt that follows a dead one counts from a base of its own: indices go up, with a gap there only.
"""

from collections.abc import Iterator
from typing import Any

from domain.events import item
from domain.events import turn as turn_events
from domain.frames import LiveItemDelta, LiveItemStarted
from domain.parts import Scope
from services.gateway.dialects.agentos.applying import apply
from services.gateway.dialects.agentos.calls import Call, paused_content, requirement_object, seconds, step_requirement
from services.gateway.dialects.agentos.component import PREFIX, Component
from services.gateway.dialects.agentos.order import Lost, Placed
from services.gateway.dialects.agentos.outcome import completed_fields, error_fields, member_runs, metadata_of
from services.gateway.dialects.agentos.run import Member, Run

ATTEMPT_BASE = 10_000_000
"""Indices of attempt n (from 1) start at (n - 1) times this: more events than an attempt can have."""

_OWN = (
    [f"Run{name}" for name in ("Started", "Continued", "Content", "IntermediateContent", "ContentCompleted")]
    + [f"Run{name}" for name in ("Completed", "Paused", "Error", "Cancelled")]
    + [f"ToolCall{name}" for name in ("Started", "Completed", "Error")]
)
_DERIVED = frozenset(
    [*_OWN, *(f"Team{name}" for name in _OWN)]
    + [f"Workflow{name}" for name in ("Started", "Completed", "Paused", "Error", "Cancelled")]
)
"""What the fold makes itself of the run's own frames; a runtime that reports them as well is not repeated."""

_MEMBER_DERIVED = frozenset(
    f"{prefix}{name}"
    for prefix in ("", "Team")
    for name in ("RunContent", "ToolCallStarted", "ToolCallCompleted", "ToolCallError")
)
_HIDDEN = frozenset({"SessionState", "RunMetrics"})
_REMEMBERED = (
    *("agent_id", "agent_name", "team_id", "team_name", "workflow_id", "workflow_name", "workflow_run_id"),
    *("step_id", "step_name", "step_index", "parent_step_id"),
)

_OURS = frozenset({"event", "event_index", "created_at", "run_id", "session_id", "parent_run_id", "nested_depth"})

Event = dict[str, Any]


class Fold:
    """Frames go in by `apply`, events come out. `run` is the state they leave behind; `events` all that were given,
    without the pieces of texts."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.events: list[Event] = []
        self.index = -1
        """Of the last event."""

        self.count = 0

    def apply(self, placed: Placed) -> list[Event]:
        """What the next frame says."""
        boundary = isinstance(placed.data, turn_events.TurnStarted) and self.run.attempt not in (0, placed.data.attempt)
        stopped_in = self.run.status
        apply(self.run, placed)
        if placed.frame is None:
            return []
        if boundary:
            assert isinstance(placed.data, turn_events.TurnStarted)
            self._jump(placed.data.attempt)
        elif placed.outside and stopped_in == "running":
            self._jump(placed.attempt + 1)
        made = []
        for event in self._events(placed, boundary):
            self.index += 1
            event["event_index"] = self.index
            made.append(event)
            self.count += 1
            if not event["event"].endswith("RunContent"):
                self.events.append(event)
        return made

    def events_after(self, index: int) -> list[Event]:
        """Those of `events` with a higher index."""
        return [event for event in self.events if event["event_index"] > index]

    def _jump(self, attempt: int) -> None:
        self.index = max(self.index, (attempt - 1) * ATTEMPT_BASE - 1)

    def _events(self, placed: Placed, boundary: bool) -> Iterator[Event]:
        data = placed.data
        match data:
            case turn_events.TurnStarted():
                yield from self._started(placed, data, boundary)
            case Lost():
                yield self._content(placed, None, "")
            case LiveItemStarted(kind="text" | "reasoning"):
                yield self._content(placed, data.scope, "")
            case LiveItemDelta():
                yield self._delta(placed, data)
            case item.ToolStarted():
                call = self.run.call(data.item_id)
                if call is not None:
                    yield self._event(placed, "ToolCallStarted", data.scope, tool=call.tool() | _UNDONE)
            case item.ToolResultSnapshot(final=True):
                yield from self._tool_ended(placed, data)
            case item.RuntimeEvent():
                yield from self._reported(placed, data)
            case turn_events.TurnPaused():
                yield from self._paused(placed)
            case _ if isinstance(data, turn_events.TERMINAL):
                yield from self._ended(placed)

    # One kind of frame each -----------------------------------------------------------------------------------------

    def _started(self, placed: Placed, data: turn_events.TurnStarted, boundary: bool) -> Iterator[Event]:
        kind = self.run.component.kind
        first = data.reason == "first"
        branch = self.run.forked_from is not None or self.run.regenerates is not None
        if kind == "workflow":
            if first:
                yield self._event(placed, "Started", None)
        elif first and not branch:
            model = self.run.component.model
            yield self._event(
                placed, "RunStarted", None, model=model.get("id", ""), model_provider=model.get("provider", "")
            )
        elif boundary:
            # What was said behind the last checkpoint of the dead attempt does not count any more.
            yield self._event(placed, "RunContinued", None, content=self.run.content() or "")
        else:
            yield self._event(placed, "RunContinued", None)
        if boundary:
            for member in list(self.run.members.values()):
                if member.status == "RUNNING" and member.scope.component != "workflow":
                    said = self.run.said_by(member.scope.run_id)
                    yield self._event(placed, "RunContinued", member.scope, content=said)

    def _delta(self, placed: Placed, data: LiveItemDelta) -> Event:
        if data.item_id in self.run.reasoning:
            return self._content(placed, data.scope, "", data.text)
        return self._content(placed, data.scope, data.text)

    def _content(self, placed: Placed, scope: Scope | None, text: str, reasoning: str = "") -> Event:
        if isinstance(placed.data, LiveItemStarted) and placed.data.kind == "reasoning":
            self.run.reasoning.add(placed.data.item_id)
        component = self.run.component.kind if scope is None else scope.component
        fields: Event = {"content": text, "content_type": "str", "reasoning_content": reasoning}
        if component != "team":
            fields["workflow_agent"] = False
        return self._event(placed, "RunContent", scope, **fields)

    def _tool_ended(self, placed: Placed, data: item.ToolResultSnapshot) -> Iterator[Event]:
        call = self.run.call(data.item_id)
        if call is None or call.started_at is None:
            # Refused, or executed by the client: it never ran here.
            return
        yield self._event(placed, "ToolCallCompleted", data.scope, tool=call.tool(), content=call.completed_text())
        if data.is_error:
            yield self._event(placed, "ToolCallError", data.scope, tool=call.tool(), error=call.result or "")

    def _reported(self, placed: Placed, data: item.RuntimeEvent) -> Iterator[Event]:
        if data.name in _HIDDEN or data.name in (_DERIVED if data.scope is None else _MEMBER_DERIVED):
            return
        payload = data.payload if isinstance(data.payload, dict) else {}
        if data.scope is not None:
            self._remember(placed, data.scope, data.name, payload)
        fields = {name: value for name, value in payload.items() if name not in _OURS}
        yield self._base(placed, data.name, data.scope) | fields

    def _paused(self, placed: Placed) -> Iterator[Event]:
        run = self.run
        if run.component.kind == "workflow":
            yield self._event(placed, "Paused", None, status="PAUSED", **workflow_pause(run))
            return
        if run.component.kind == "agent":
            yield self._event(placed, "RunContentCompleted", None)
        yield self._event(
            placed,
            "RunPaused",
            None,
            content=paused_content(run.component.kind, run.requirements),
            tools=tools_of(run),
            requirements=requirements_of(run),
        )

    def _ended(self, placed: Placed) -> Iterator[Event]:
        run, workflow = self.run, self.run.component.kind == "workflow"
        name = "" if workflow else "Run"
        if run.status == "failed":
            for member in run.members.values():
                member.status = "ERROR" if member.status == "RUNNING" else member.status
            yield self._event(placed, f"{name}Error", None, **error_fields(run))
        elif run.status == "completed":
            if not workflow:
                yield self._event(placed, "RunContentCompleted", None)
            yield self._event(placed, f"{name}Completed", None, **completed_fields(run))
        else:
            said: Event = {"reason": f"Run {run.run_id} was cancelled"}
            content = run.content()
            if content is not None or workflow:
                said["content"] = content or said["reason"]
            yield from self._stopped(placed)
            yield self._event(placed, f"{name}Cancelled", None, **said)
            yield self._event(placed, f"{name}Completed", None, **completed_fields(run))

    def _stopped(self, placed: Placed) -> Iterator[Event]:
        """Runs inside the run that were under way: they end as it does, the innermost first."""
        for member in reversed(list(self.run.members.values())):
            if member.status != "RUNNING":
                continue
            said = self.run.said_by(member.scope.run_id)
            member.status = "CANCELLED"
            member.output = {"content": said, "content_type": "str"}
            if member.scope.component != "workflow":
                reason = f"Run {member.scope.run_id} was cancelled"
                yield self._event(placed, "RunCancelled", member.scope, content=said, reason=reason)
                yield self._event(placed, "RunCompleted", member.scope, **member.output)

    # Fields that events share ---------------------------------------------------------------------------------------

    def _event(self, placed: Placed, name: str, scope: Scope | None, **fields: Any) -> Event:
        kind = self.run.component.kind if scope is None else scope.component
        return self._base(placed, PREFIX.get(kind, "") + name, scope) | fields

    def _base(self, placed: Placed, name: str, scope: Scope | None) -> Event:
        run = self.run
        if scope is None:
            base = {**run.component.names(), "run_id": run.run_id, "session_id": run.session_id, "nested_depth": 0}
        else:
            base = self._scoped(scope)
        return {"created_at": seconds(placed.at), "event": name, **base}

    def _scoped(self, scope: Scope) -> Event:
        run = self.run
        parent, workflow = scope.parent_run_id, run.component.kind == "workflow"
        base: Event = {
            f"{scope.component}_id": scope.id,
            f"{scope.component}_name": member_name(run.component, scope.id),
            "run_id": scope.run_id,
            "session_id": run.session_id,
            "nested_depth": 0,
        }
        if parent is not None and not (workflow and parent == run.turn_id):
            base["parent_run_id"] = run.run_id if parent == run.turn_id else parent
        if workflow and scope.component != "workflow":
            base |= {"workflow_id": run.component.agent_id, "workflow_run_id": run.run_id}
        member = run.members.get(scope.run_id)
        if member is not None:
            base |= member.base
        # Workflows in workflows are counted, members of teams are not.
        base["nested_depth"] = max(scope.depth - 1, 0) if workflow else 0
        return base

    def _remember(self, placed: Placed, scope: Scope, name: str, payload: Event) -> None:
        member = self.run.members.get(scope.run_id)
        if member is None:
            member = self.run.members[scope.run_id] = Member(scope, started_at=placed.at)
        member.base |= {key: payload[key] for key in _REMEMBERED if payload.get(key) is not None}
        bare = name.removeprefix("Team").removeprefix("Workflow")
        if bare in ("RunCompleted", "Completed"):
            # Behind RunCancelled or RunError it says no more than that the run is over.
            over = member.status in ("CANCELLED", "ERROR")
            member.status, member.output = member.status if over else "COMPLETED", payload
        elif bare in ("RunContinued", "Continued"):
            member.status = "RUNNING"
        elif bare in ("RunError", "Error", "RunCancelled", "Cancelled", "RunPaused", "Paused"):
            member.status = {"Error": "ERROR", "Cancelled": "CANCELLED", "Paused": "PAUSED"}[bare.removeprefix("Run")]


_UNDONE: Event = {"tool_call_error": None, "result": None, "metrics": None}


def member_name(component: Component, member_id: str) -> str:
    """What the definition calls a member, or the agent of a step; else its id."""
    stack: list[Any] = [component.facts.get("members"), component.facts.get("steps")]
    while stack:
        one = stack.pop()
        if isinstance(one, list):
            stack += one
        elif isinstance(one, dict):
            if one.get("id") == member_id and isinstance(one.get("name"), str):
                return str(one["name"])
            stack += [one.get(name) for name in ("members", "steps", "agent", "team", "workflow")]
    return member_id


def tools_of(run: Run) -> list[Event]:
    """Tool objects: the run's own calls, and what is asked of members' calls."""
    own = [call.tool() for call in run.calls()]
    known = {call.item_id for call in run.calls()}
    asked = [
        requirement_object(run.turn_id, r, run.asked_at, _call_of(run, r.item_id))["tool_execution"]
        for r in run.requirements
        if r.item_id not in known and not _is_own(run, r.tool_call_id)
    ]
    return own + asked


def _is_own(run: Run, tool_call_id: str) -> bool:
    return any(call.tool_call_id == tool_call_id for call in run.calls())


def _call_of(run: Run, item_id: str | None) -> Call | None:
    return None if item_id is None else run.call(item_id)


def requirements_of(run: Run) -> list[Event]:
    """What a paused run asks."""
    return [requirement_object(run.turn_id, r, run.asked_at, _call_of(run, r.item_id)) for r in run.requirements]


def workflow_pause(run: Run) -> Event:
    """What a paused workflow says of where it stands."""
    asked = [step_requirement(requirement) for requirement in run.requirements]
    first = asked[0] if asked else {}
    shown: Event = {
        "paused_step_index": first.get("step_index", len(run.steps)),
        "paused_step_name": first.get("step_name"),
        "pause_kind": "step",
        "step_requirements": asked,
        "step_results": list(run.steps),
        "step_executor_runs": member_runs(run),
        "metadata": metadata_of(run),
    }
    return shown
