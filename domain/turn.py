"""State of one turn and how its events change it. The `turns` read model is this state, row by row."""

from typing import Any, Literal

import msgspec

from domain.clock import parse_rfc3339, rfc3339
from domain.events import hook, item, registry, turn
from domain.events.base import Event
from domain.ids import EnqueueSequence, Micros, Sequence, TurnId
from domain.parts import Failure, ForkSource, Requirement
from domain.progress import Progress, advance

Status = Literal["queued", "running", "paused", "completed", "failed", "interrupted", "cancelled"]

TERMINAL_STATUS: frozenset[str] = frozenset({"completed", "failed", "interrupted", "cancelled"})
ACTIVE_STATUS: frozenset[str] = frozenset({"running", "paused"})

LEGAL: dict[str, frozenset[str]] = {
    "queued": frozenset({"running", "cancelled"}),
    "running": frozenset({"running", "paused", "completed", "failed", "interrupted"}),
    "paused": frozenset({"running", "cancelled", "failed", "interrupted"}),
}
"""From -> to. Terminal statuses are absent: they never change."""


OF_ATTEMPT = frozenset(
    {
        item.ItemCompleted,
        item.ItemSuperseded,
        item.ToolStarted,
        item.ToolResultSnapshot,
        item.RuntimeEvent,
        item.UsageRecorded,
    }
)
"""Most events of a turn: what the running attempt writes. They leave its status as it is, so that folds ask for them
first."""


class IllegalTransition(ValueError):
    """The log says something that cannot have happened: the audit's finding, never a client's fault."""


class Turn(msgspec.Struct, kw_only=True):
    """A turn, as far as its events tell. `input` and `rewritten_input` are JSON texts of parts."""

    turn_id: TurnId
    enqueue_sequence: EnqueueSequence
    input: bytes
    queued_at: Micros
    first_sequence: Sequence
    last_sequence: Sequence
    status: Status = "queued"
    context_version: str | None = None
    idempotency_key: str | None = None
    external_id: str | None = None
    metadata: bytes | None = None
    attempt: int = 0
    deaths: int = 0
    released: bool = False
    continued: bool = False
    next_frame: int | None = None
    rewritten_input: bytes | None = None
    output: str | None = None
    error: Failure | None = None
    usage: dict[str, Any] | None = None
    requirements: list[Requirement] = []
    forked_from: ForkSource | None = None
    regenerates: str | None = None
    superseded_by: str | None = None
    parent_turn_id: TurnId | None = None
    interrupt_by: str | None = None
    interrupt_then: str | None = None
    checkpoint_sequence: Sequence | None = None
    started_at: Micros | None = None
    finished_at: Micros | None = None
    progress: Progress | None = None
    leg_started_at: Micros | None = None
    expires_at: Micros | None = None

    @property
    def terminal(self) -> bool:
        return self.status in TERMINAL_STATUS

    @property
    def effective_input(self) -> bytes:
        """What the model gets: the input as rewritten by hooks, where one did."""
        return self.rewritten_input if self.rewritten_input is not None else self.input

    def open_requirements(self) -> list[Requirement]:
        return [requirement for requirement in self.requirements if requirement.answer is None]


def new_turn(turn_id: TurnId, event: turn.TurnQueued, sequence: Sequence, at: Micros) -> Turn:
    """The turn that `turn.queued` brings into being."""
    return Turn(
        turn_id=turn_id,
        enqueue_sequence=EnqueueSequence(event.enqueue_sequence),
        input=msgspec.json.encode(event.input),
        queued_at=at,
        first_sequence=sequence,
        last_sequence=sequence,
        context_version=event.context_version,
        idempotency_key=event.idempotency_key,
        external_id=event.external_id,
        metadata=None if event.metadata is None else msgspec.json.encode(event.metadata),
        forked_from=event.forked_from,
        regenerates=event.regenerates,
    )


def evolve_turn(state: Turn, event: Event, sequence: Sequence, at: Micros) -> None:
    """Apply one of the turn's own events, in place. Raises IllegalTransition on what the life cycle forbids."""
    if type(event) in OF_ATTEMPT:
        _go_on(state, event)
        state.last_sequence = sequence
        return
    match event:
        case turn.TurnStarted():
            _move(state, "running")
            state.attempt = event.attempt
            state.deaths += event.reason == "worker_lost"
            state.released = state.continued = False
            state.next_frame = state.expires_at = None
            state.leg_started_at = at
            if state.started_at is None:
                state.started_at = at
                state.parent_turn_id = None if event.parent_turn_id is None else TurnId(event.parent_turn_id)
        case item.CheckpointReached():
            state.checkpoint_sequence = sequence
            state.deaths = 0
            state.progress = advance(state.progress, event)
        case turn.TurnCompleted():
            _end(state, "completed", at)
            state.output = event.output
            state.usage = event.usage
        case turn.TurnPaused():
            _move(state, "paused")
            state.requirements = list(event.requirements)
            state.next_frame = event.next_frame
            state.expires_at = _expiry(state.requirements)
        case turn.TurnAnswered():
            state.requirements = [
                msgspec.structs.replace(r, answer=event.answer) if r.tool_call_id == event.tool_call_id else r
                for r in state.requirements
            ]
            state.expires_at = _expiry(state.requirements)
        case turn.TurnContinued():
            state.continued = True
        case turn.TurnReleased():
            state.released = True
        case turn.InterruptRequested():
            state.interrupt_by = event.by
            state.interrupt_then = event.then
        case turn.InputRewritten():
            state.rewritten_input = msgspec.json.encode(event.input)
        case turn.TurnFailed():
            _end(state, "failed", at)
            state.error = event.error
            state.usage = event.usage or None
        case turn.TurnInterrupted():
            _end(state, "interrupted", at)
            state.usage = event.usage or None
        case turn.TurnCancelled():
            _end(state, "cancelled", at)
        case turn.TurnSuperseded():
            if not state.terminal:
                raise IllegalTransition(f"superseded while {state.status}")
            state.superseded_by = event.by_turn_id
        case hook.HookScheduled() | hook.HookCompleted() | hook.HookFailed() | registry.UnknownEvent():
            pass
        case _:
            _go_on(state, event)
    state.last_sequence = sequence


def _expiry(requirements: list[Requirement]) -> Micros | None:
    """When the first of those that are not answered expires."""
    waiting = (r.expires_at for r in requirements if r.answer is None and r.expires_at is not None)
    return min((parse_rfc3339(at) for at in waiting), default=None)


def _go_on(state: Turn, event: Event) -> None:
    if state.status != "running":
        raise IllegalTransition(f"{event.type} while {state.status}")
    state.progress = advance(state.progress, event)


def _move(state: Turn, to: Status) -> None:
    if to not in LEGAL.get(state.status, frozenset()):
        raise IllegalTransition(f"{state.status} -> {to}")
    state.status = to


def _end(state: Turn, to: Status, at: Micros) -> None:
    _move(state, to)
    state.finished_at = at
    state.continued = state.released = False
    state.next_frame = state.progress = state.expires_at = None


class TurnView(msgspec.Struct, kw_only=True):
    """A turn as the API shows it (docs/api.md); times are RFC 3339."""

    turn_id: str
    status: str
    enqueue_sequence: int
    context_version: str | None
    attempt: int
    input: msgspec.Raw
    output: str | None
    error: Failure | None
    requirements: list[Requirement]
    forked_from: ForkSource | None
    superseded_by: str | None
    queued_at: str
    started_at: str | None
    finished_at: str | None
    first_sequence: int
    last_sequence: int
    external_id: str | None = None
    usage: dict[str, Any] | None = None
    parent_turn_id: str | None = None


def view(state: Turn) -> TurnView:
    """What a client may see of a turn."""
    return TurnView(
        turn_id=state.turn_id,
        status=state.status,
        enqueue_sequence=state.enqueue_sequence,
        context_version=state.context_version,
        attempt=state.attempt,
        input=msgspec.Raw(state.input),
        output=state.output,
        error=state.error,
        requirements=state.requirements,
        forked_from=state.forked_from,
        superseded_by=state.superseded_by,
        queued_at=rfc3339(state.queued_at),
        started_at=None if state.started_at is None else rfc3339(state.started_at),
        finished_at=None if state.finished_at is None else rfc3339(state.finished_at),
        first_sequence=state.first_sequence,
        last_sequence=state.last_sequence,
        external_id=state.external_id,
        usage=state.usage,
        parent_turn_id=state.parent_turn_id,
    )
