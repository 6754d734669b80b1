"""A run as far as its frames tell: everything that events and objects of AgentOS are made of. Pure."""

from dataclasses import dataclass, field
from typing import Any

from domain.ids import Micros
from domain.parts import Failure, FilePart, ForkSource, Part, Requirement, Scope, input_text
from services.gateway.dialects.agentos.calls import Call
from services.gateway.dialects.agentos.component import Component

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

        self.order: list[tuple[str, Text | Call]] = []
        """`text`, `call` or `result`, as they came."""

        self.by_item: dict[str, Call] = {}
        self.open_calls: set[str] = set()
        self.gone: set[str] = set()
        """Items that a later attempt has superseded."""

        self.pieces: list[tuple[str, str]] = []
        """Item and text of each delta of the run's own."""

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
        whole = {one.item_id for kind, one in self.order if kind == "text"}
        said = [text for item_id, text in self.pieces if item_id in whole]
        if self.component.kind == "workflow":
            # What its steps say is theirs; its own word is the result, or why there is none.
            own = [one.text for _, one in self.order if isinstance(one, Text) and one.scope is None]
            return self.output or (own[-1] if own else None)
        return "".join(said) if said else self.output

    def said_by(self, run_id: str) -> str:
        """What a member's run has said, of texts that are whole."""
        texts = [one for _, one in self.order if isinstance(one, Text)]
        return "".join(text.text for text in texts if text.scope is not None and text.scope.run_id == run_id)

    def calls(self) -> list[Call]:
        """Its own tool calls, in order."""
        return [call for kind, call in self.order if kind == "call" and isinstance(call, Call) and call.scope is None]

    def call(self, item_id: str) -> Call | None:
        return self.by_item.get(item_id)

    def transcript(self) -> list[tuple[str, Text | Call]]:
        """`("text" | "call" | "result", …)` of the run itself, in order."""
        return [(kind, one) for kind, one in self.order if one.scope is None]
