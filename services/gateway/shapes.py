"""What answers look like, for the OpenAPI document; the answers themselves mostly pass through as the agent service's
bytes, and the schemathesis test holds the two together."""

from typing import Any, Literal

from pydantic import BaseModel, Field

TurnStatus = Literal["queued", "running", "paused", "completed", "failed", "interrupted", "cancelled"]


class Problem(BaseModel):
    """RFC 9457; further typed fields depend on `code`."""

    type: str
    title: str
    status: int
    detail: str
    code: str


class Fault(BaseModel):
    """One thing that is wrong with a request."""

    pointer: str
    message: str


class InvalidProblem(Problem):
    """A request without the documented shape."""

    errors: list[Fault] = []


class Agent(BaseModel):
    """What a session can be created for."""

    agent_id: str
    name: str
    component: Literal["agent", "team", "workflow"]


class CreatedSession(BaseModel):
    """The token is shown this once."""

    session_id: str
    external_id: str | None
    agent_id: str
    session_token: str
    last_sequence: int
    epoch: int


class Session(BaseModel):
    """A session as its owner sees it."""

    session_id: str
    external_id: str | None
    agent_id: str
    title: str | None
    starred: bool
    context_version: str | None
    metadata: dict[str, Any] | None
    created_at: str
    changed_at: str


class SessionList(BaseModel):
    """Newest first."""

    items: list[Session]
    next_cursor: str | None


class QueuedTurn(BaseModel):
    """A turn that was accepted."""

    turn_id: str
    status: TurnStatus
    enqueue_sequence: int
    sequence: int
    queue_state: Literal["open", "paused"]


class BranchedTurn(QueuedTurn):
    """A turn that was accepted, whose history ends inside another one. `snapped`: the place asked for was no place to
    fork from, and `forked_from` names the one before it."""

    forked_from: dict[str, Any] | None = None
    snapped: bool = False


class Turn(BaseModel):
    """A turn as the read model has it."""

    turn_id: str
    status: TurnStatus
    enqueue_sequence: int
    context_version: str | None
    attempt: int
    input: list[dict[str, Any]]
    output: str | None
    error: dict[str, Any] | None
    requirements: list[dict[str, Any]]
    forked_from: dict[str, Any] | None
    superseded_by: str | None
    queued_at: str
    started_at: str | None
    finished_at: str | None
    first_sequence: int
    last_sequence: int


class TurnList(BaseModel):
    """Newest first."""

    items: list[Turn]
    next_cursor: str | None


class ContinuedTurn(BaseModel):
    """The answers are stored; the turn goes on once every question has one."""

    turn_id: str
    status: TurnStatus
    sequence: int
    interrupt_requested: bool


class Checkpoint(BaseModel):
    """A place in a turn: after a batch of tools, at a pause, where it was cut off, at its end."""

    sequence: int
    message_index: int
    reason: Literal["tool_batch", "pause", "interrupted", "end"]
    status: TurnStatus
    is_latest: bool


class InterruptedTurn(BaseModel):
    """The intent is stored; the end of the turn is an event."""

    turn_id: str
    status: TurnStatus
    sequence: int
    interrupt_requested: bool


class Status(BaseModel):
    """Where a session stands."""

    chat_status: Literal["agent", "human"]
    queue_state: Literal["open", "paused"]
    active_turn_id: str | None
    queued: int
    last_sequence: int
    epoch: int


class Message(BaseModel):
    """A message as the read model has it."""

    message_id: str
    turn_id: str
    role: Literal["user", "assistant"]
    parts: list[dict[str, Any]]
    status: Literal["complete", "partial", "superseded"]
    first_sequence: int
    last_sequence: int
    ordinal: int
    created_at: str


class MessageList(BaseModel):
    """In the order of turns and, within a turn, of ordinals."""

    items: list[Message]
    as_of_sequence: int
    next_cursor: str | None


class Projection(BaseModel):
    """A read model across sessions. `lag_events` is counted up to 100,000; `lag_seconds` is the age of the oldest event
    that is not in it; `parked`: events that it could not take."""

    name: str
    slot: str
    version: int
    running: bool
    lag_events: int
    lag_seconds: float
    parked: int


class FoundText(BaseModel):
    """What was said; `sequence` is that of its event."""

    session_id: str
    turn_id: str
    role: Literal["user", "assistant"]
    sequence: int
    content: str
    created_at: str


class FoundTexts(BaseModel):
    """The newest first."""

    items: list[FoundText]
    next_cursor: str | None


class HookRun(BaseModel):
    """A background hook, or an evaluation, and what became of it."""

    job_id: str
    session_id: str
    turn_id: str
    hook: str
    kind: Literal["hook", "evaluation"]
    status: Literal["scheduled", "completed", "failed"]
    result: Any = None
    error: str | None
    attempts: int | None
    scheduled_at: str
    finished_at: str | None


class HookRuns(BaseModel):
    """The newest first."""

    items: list[HookRun]
    next_cursor: str | None


class Event(BaseModel):
    """A committed event; `data` by its `type` (docs/events.md)."""

    session_id: str
    sequence: int
    event_id: str
    type: str
    schema_version: int
    turn_id: str | None = None
    created_at: str
    data: dict[str, Any]


class EventPage(BaseModel):
    """Committed events after the cursor. `next_sequence`: the cursor to go on from."""

    items: list[Event]
    next_sequence: int


class StreamTicket(BaseModel):
    """`expires_in`: seconds in which the ticket must be used."""

    ticket: str
    expires_in: int


class Health(BaseModel):
    """`failing`: part -> kind of error."""

    status: Literal["ok", "failing"]
    failing: dict[str, str] = Field(default_factory=dict)
