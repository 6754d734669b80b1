"""A run as far as its frames tell: everything that events and objects of AgentOS are made of. Pure."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from domain.events import item
from domain.events import turn as turn_events
from domain.frames import LiveItemDelta
from domain.ids import Micros
from domain.parts import Answer, Failure, FilePart, ForkSource, Part, Requirement, Scope, input_text
from services.gateway.dialects.agentos.calls import Call
from services.gateway.dialects.agentos.component import Component
from services.gateway.dialects.agentos.messages import messages_of
from services.gateway.dialects.agentos.order import Placed

STATUS: dict[str, str] = {
    "queued": "PENDING",
    "running": "RUNNING",
    "paused": "PAUSED",
    "completed": "COMPLETED",
    "failed": "ERROR",
    "interrupted": "CANCELLED",
    "cancelled": "CANCELLED",
}
"""Of a turn -> of a run; a superseded one is REGENERATED."""


@dataclass(slots=True)
class Text:
    """A text item of the run."""

    item_id: str
    message_id: str | None
    text: str
    scope: Scope | None
    at: Micros


@dataclass(slots=True)
class Place:
    """A checkpoint that one can continue from: `messages` are kept there."""

    sequence: int
    messages: int
    at: Micros


@dataclass(slots=True)
class Member:
    """A run inside the run. `base`: what its runtime said that all of its events carry."""

    scope: Scope
    base: dict[str, Any] = field(default_factory=dict)
    input: str | None = None
    output: dict[str, Any] = field(default_factory=dict)
    status: str = "RUNNING"
    started_at: int = 0


class Run:
    """`run_id` and `session_id` are what the caller calls them; `user_id` what the session was begun with."""

    def __init__(
        self, component: Component, turn_id: str, run_id: str, session_id: str, user_id: str | None = None
    ) -> None:
        self.component = component
        self.turn_id = turn_id
        self.run_id = run_id
        self.session_id = session_id
        self.user_id = user_id
        self.status = "queued"
        self.superseded_by: str | None = None
        self.created_at = Micros(0)
        self.first_sequence = 0
        self.started_at: Micros | None = None
        self.ended_at: Micros | None = None
        self.input: list[Part] = []
        self.extra: dict[str, Any] = {}
        self.copied_from: str | None = None
        self.idempotency_key: str | None = None
        self.forked_from: ForkSource | None = None
        self.regenerates: str | None = None
        self.error: Failure | None = None
        self.output: str | None = None
        self.continued = False
        self.attempt = 0
        self.requirements: list[Requirement] = []
        self.asked_at = Micros(0)
        self.cancelled_while: str | None = None
        self.session_state: Any = None
        self.metrics: dict[str, Any] | None = None
        self.usage: dict[str, dict[str, int]] = {}
        self.places: list[Place] = []
        self.steps: list[dict[str, Any]] = []
        self.members: dict[str, Member] = {}
        self.reasoning: set[str] = set()
        """Items that are no text."""

        self._order: list[tuple[str, Text | Call]] = []
        self._calls: dict[str, Call] = {}
        self._open_calls: set[str] = set()
        self._gone: set[str] = set()
        self._pieces: list[tuple[str, str]] = []

    # What it is ----------------------------------------------------------------------------------------------------

    @property
    def wire_status(self) -> str:
        return "REGENERATED" if self.superseded_by is not None else STATUS[self.status]

    @property
    def terminal(self) -> bool:
        return self.status in ("completed", "failed", "interrupted", "cancelled")

    @property
    def waits(self) -> bool:
        """It waits for people: for a stream that is an end."""
        return self.status == "paused" and not self.continued

    def ended(self) -> bool:
        """Nothing more comes on its stream: it is over, or waits for people."""
        return self.terminal or self.waits

    @property
    def input_text(self) -> str:
        return input_text(self.input)

    @property
    def input_files(self) -> list[FilePart]:
        return [part for part in self.input if isinstance(part, FilePart)]

    def content(self) -> str | None:
        """What the run itself has said so far, piece by piece as it was streamed, of texts that are whole."""
        whole = {one.item_id for kind, one in self._order if kind == "text"}
        said = [text for item_id, text in self._pieces if item_id in whole]
        if self.component.kind == "workflow":
            # What its steps say is theirs; its own word is the result, or why there is none.
            own = [one.text for _, one in self._order if isinstance(one, Text) and one.scope is None]
            return self.output or (own[-1] if own else None)
        return "".join(said) if said else self.output

    def said_by(self, run_id: str) -> str:
        """What a member's run has said, of texts that are whole."""
        texts = [one for _, one in self._order if isinstance(one, Text)]
        return "".join(text.text for text in texts if text.scope is not None and text.scope.run_id == run_id)

    def calls(self) -> list[Call]:
        """Its own tool calls, in order."""
        return [call for kind, call in self._order if kind == "call" and isinstance(call, Call) and call.scope is None]

    def call(self, item_id: str) -> Call | None:
        return self._calls.get(item_id)

    def transcript(self) -> list[tuple[str, Text | Call]]:
        """`("text" | "call" | "result", …)` of the run itself, in order."""
        return [(kind, one) for kind, one in self._order if one.scope is None]

    def step(self, payload: Any) -> None:
        """A step has ended: what it gave."""
        if isinstance(payload, dict):
            response = payload.get("step_response")
            self.steps.append(
                response
                if isinstance(response, dict)
                else {name: payload[name] for name in ("step_name", "step_id", "content") if name in payload}
            )

    # What happens to it --------------------------------------------------------------------------------------------

    def apply(self, placed: Placed) -> None:
        """The next frame, or an event without one."""
        data, at = placed.data, placed.at
        match data:
            case turn_events.TurnQueued():
                self._queued(data, placed)
            case turn_events.InputRewritten():
                self.input = data.input
            case turn_events.TurnStarted():
                self.status, self.continued, self.attempt = "running", False, data.attempt
                self.started_at = at if self.started_at is None else self.started_at
            case turn_events.TurnPaused():
                self.status, self.asked_at = "paused", at
                self._ask(data.requirements)
            case turn_events.TurnAnswered():
                self._answer(data.tool_call_id, data.answer)
            case turn_events.TurnContinued():
                self.continued = True
            case LiveItemDelta(scope=None):
                # In the order of the stream: texts of one run may come side by side.
                self._pieces.append((data.item_id, data.text))
            case item.ItemSuperseded():
                # Some may come later: they wait behind a hole of their attempt.
                self._gone.update(data.item_ids)
                self._order = [(kind, one) for kind, one in self._order if one.item_id not in self._gone]
                self._open_calls -= self._gone
            case item.ItemCompleted():
                self._item(data, at)
            case item.ToolStarted():
                call = self._calls.get(data.item_id)
                if call is not None and call.started_at is None:
                    call.started_at = at
            case item.ToolResultSnapshot(final=True):
                self._result(data, at)
            case item.CheckpointReached():
                if data.reason == "tool_batch" and not self._open_calls and data.scope is None:
                    self.places.append(Place(placed.sequence, len(messages_of(self)), at))
            case item.UsageRecorded():
                self._use(data)
            case item.RuntimeEvent():
                self._runtime_event(data)
            case turn_events.TurnSuperseded():
                self.superseded_by = data.by_turn_id
            case _ if isinstance(data, turn_events.TERMINAL):
                self._end(data, at)

    def _queued(self, data: turn_events.TurnQueued, placed: Placed) -> None:
        self.created_at, self.first_sequence = placed.at, placed.sequence
        self.input, self.forked_from, self.regenerates = data.input, data.forked_from, data.regenerates
        self.idempotency_key = data.idempotency_key
        metadata = data.metadata or {}
        said, copied = metadata.get("agentos"), metadata.get("copied_from")
        self.extra = said if isinstance(said, dict) else {}
        self.copied_from = copied.get("session") if isinstance(copied, dict) else None
        self.session_state = self.extra.get("session_state")
        user = self.extra.get("user_id")
        self.user_id = user if isinstance(user, str) else self.user_id

    def _ask(self, requirements: list[Requirement]) -> None:
        self.requirements = list(requirements)
        for requirement in requirements:
            call = self._call_of(requirement)
            if call is not None:
                call.requirement = requirement

    def _answer(self, tool_call_id: str, answer: Answer) -> None:
        self.requirements = [
            msgspec.structs.replace(r, answer=answer) if r.tool_call_id == tool_call_id else r
            for r in self.requirements
        ]
        for requirement in self.requirements:
            call = self._call_of(requirement)
            if call is not None:
                call.requirement = requirement

    def _call_of(self, requirement: Requirement) -> Call | None:
        if requirement.item_id is not None:
            return self._calls.get(requirement.item_id)
        mine = [call for call in self._calls.values() if call.tool_call_id == requirement.tool_call_id]
        return mine[-1] if mine else None

    def _item(self, data: item.ItemCompleted, at: Micros) -> None:
        if data.item_id in self._gone:
            return
        if data.kind == "text":
            self._order.append(("text", Text(data.item_id, data.message_id, data.text or "", data.scope, at)))
        elif data.kind == "tool_call" and data.tool_call is not None:
            call = Call(
                item_id=data.item_id,
                tool_call_id=data.tool_call.tool_call_id,
                name=data.tool_call.name,
                arguments=data.tool_call.arguments,
                called_at=at,
                scope=data.scope,
            )
            self._calls[data.item_id] = call
            self._open_calls.add(data.item_id)
            self._order.append(("call", call))

    def _result(self, data: item.ToolResultSnapshot, at: Micros) -> None:
        self._open_calls.discard(data.item_id)
        call = self._calls.get(data.item_id)
        if call is not None and call.ended_at is None:
            call.result, call.is_error, call.ended_at = data.output, data.is_error, at
            self._order.append(("result", call))

    def _use(self, data: item.UsageRecorded) -> None:
        counted = self.usage.setdefault(data.model, {"input_tokens": 0, "output_tokens": 0})
        counted["input_tokens"] += data.input_tokens
        counted["output_tokens"] += data.output_tokens

    def _runtime_event(self, data: item.RuntimeEvent) -> None:
        payload = data.payload
        if data.scope is None:
            if data.name == "SessionState":
                self.session_state = payload
            elif data.name == "RunMetrics" and isinstance(payload, dict):
                self.metrics = payload
            elif data.name == "StepCompleted":
                self.step(payload)

    def _end(self, data: Any, at: Micros) -> None:
        self.cancelled_while = {"queued": "PENDING", "running": "EXECUTING", "paused": "PAUSED"}.get(self.status)
        self.ended_at = at
        match data:
            case turn_events.TurnCompleted():
                self.status, self.output = "completed", data.output
            case turn_events.TurnFailed():
                self.status, self.error = "failed", data.error
            case turn_events.TurnInterrupted():
                self.status = "interrupted"
            case turn_events.TurnCancelled():
                self.status = "cancelled"
