"""Events of a turn's life."""

from typing import Any, ClassVar, Literal

import msgspec

from domain.events.base import Event, ExecutorEvent
from domain.parts import Answer, Failure, ForkSource, Part, Requirement

StartReason = Literal["first", "continued", "released", "worker_lost"]


class TurnQueued(Event, frozen=True, omit_defaults=True, kw_only=True):
    """An accepted input: from here on it will reach a terminal status."""

    type: ClassVar[str] = "turn.queued"

    enqueue_sequence: int
    input: list[Part]
    context_version: str | None = None
    idempotency_key: str | None = None
    external_id: str | None = None
    forked_from: ForkSource | None = None
    regenerates: str | None = None
    metadata: dict[str, Any] | None = None


class TurnStarted(Event, frozen=True, omit_defaults=True, kw_only=True):
    """A worker holds the claim. Takes frame number `frame_base`; the attempt's own frames follow it."""

    type: ClassVar[str] = "turn.started"

    attempt: int
    reason: StartReason
    frame_base: int
    parent_turn_id: str | None = None


class StartedPrivate(msgspec.Struct, frozen=True):
    """Private part of `turn.started`: who holds the claim."""

    fence: int
    worker: str


class TurnReleased(Event, frozen=True, omit_defaults=True, kw_only=True):
    """A draining worker handed the turn back at its last checkpoint; not a death."""

    type: ClassVar[str] = "turn.released"

    reason: Literal["draining"] = "draining"


class TurnPaused(ExecutorEvent, frozen=True, omit_defaults=True, kw_only=True):
    """The turn waits for people and keeps its place; `next_frame` is the base of the continued start."""

    type: ClassVar[str] = "turn.paused"

    requirements: list[Requirement]
    next_frame: int


class TurnAnswered(Event, frozen=True, omit_defaults=True, kw_only=True):
    """One requirement has its first and only answer."""

    type: ClassVar[str] = "turn.answered"

    tool_call_id: str
    answer: Answer


class TurnContinued(Event, frozen=True, omit_defaults=True, kw_only=True):
    """Every requirement is answered: the turn may be claimed again. The status stays paused until then."""

    type: ClassVar[str] = "turn.continued"


class InterruptRequested(Event, frozen=True, omit_defaults=True, kw_only=True):
    """Stored intent to stop the running turn; `then` says what the queue does; `closing` that the session ends with
    it."""

    type: ClassVar[str] = "turn.interrupt_requested"

    by: str
    then: Literal["pause", "go_on"]
    closing: bool = False


class TurnCompleted(ExecutorEvent, frozen=True, omit_defaults=True, kw_only=True):
    """Terminal."""

    type: ClassVar[str] = "turn.completed"

    output: str | None = None
    usage: dict[str, Any] = {}


class TurnFailed(Event, frozen=True, omit_defaults=True, kw_only=True):
    """Terminal. Without `frame` when it was written from outside the executor."""

    type: ClassVar[str] = "turn.failed"

    error: Failure
    attempt: int | None = None
    frame: int | None = None
    usage: dict[str, Any] = {}


class TurnInterrupted(Event, frozen=True, omit_defaults=True, kw_only=True):
    """Terminal. Without `frame` when it was written from outside the executor."""

    type: ClassVar[str] = "turn.interrupted"

    by: str
    usage: dict[str, Any] = {}
    attempt: int | None = None
    frame: int | None = None


class TurnCancelled(Event, frozen=True, omit_defaults=True, kw_only=True):
    """Terminal, from queued or paused."""

    type: ClassVar[str] = "turn.cancelled"

    by: str


class TurnSuperseded(Event, frozen=True, omit_defaults=True, kw_only=True):
    """Mark on a terminal turn: another one, which completed, stands in its place."""

    type: ClassVar[str] = "turn.superseded"

    by_turn_id: str


class InputRewritten(Event, frozen=True, omit_defaults=True, kw_only=True):
    """What the model really gets, after a pre-hook."""

    type: ClassVar[str] = "turn.input_rewritten"

    by: str
    input: list[Part]


TERMINAL: tuple[type[Event], ...] = (TurnCompleted, TurnFailed, TurnInterrupted, TurnCancelled)
TERMINAL_TYPES = frozenset(event.type for event in TERMINAL)
