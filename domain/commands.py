"""Commands: imperative, one struct each, a tagged union on the wire (`command` is the tag).

Every command has a key. A repeat with the same key and fingerprint gets the first reply; the fingerprint covers the
type and what the client itself sent (`SENT`), never what a gateway filled in. Executor commands are known by (turn,
fence, ordinal).
"""

import hashlib
from typing import Any, ClassVar, Literal

import msgspec

from domain.events.envelope import Draft
from domain.ids import CommandKey, Fence, Ordinal, SessionId, TurnId, WorkerId
from domain.parts import Answer, Failure, Part, Requirement

IfBusy = Literal["queue", "reject", "interrupt"]


class Command(msgspec.Struct, frozen=True, kw_only=True, tag_field="command", tag=True):
    """What all commands share. `trace` is a W3C traceparent or None."""

    SENT: ClassVar[tuple[str, ...]] = ()

    session_id: SessionId
    key: CommandKey
    by: str = "system"
    trace: str | None = None


class CreateSession(Command, frozen=True, kw_only=True, tag="create_session"):
    """Open a stream under an id minted by the gateway; repeatable by that id."""

    SENT = ("agent_id",)

    agent_id: str
    component: Literal["agent", "team", "workflow"] = "agent"


class BeginTurn(Command, frozen=True, kw_only=True):
    """Accepts one more turn. `owner`: whose turns it counts with, a UUID made of the user (None: nobody's, no quota);
    `admitted`: False where the user may begin none now, so that only a known key is answered."""

    turn_id: TurnId
    owner: str | None = None
    admitted: bool = True


class SubmitTurn(BeginTurn, frozen=True, kw_only=True, tag="submit_turn"):
    """Accept an input as a queued turn."""

    SENT = ("input", "if_busy", "external_id", "metadata")

    input: list[Part]
    if_busy: IfBusy = "queue"
    context_version: str | None = None
    external_id: str | None = None
    metadata: dict[str, Any] | None = None


class CancelTurn(Command, frozen=True, kw_only=True, tag="cancel_turn"):
    """End a queued or paused turn."""

    SENT = ("turn_id",)

    turn_id: TurnId


class InterruptTurn(Command, frozen=True, kw_only=True, tag="interrupt_turn"):
    """Store the intent to stop the running turn. `then`: what becomes of those that wait behind it."""

    SENT = ("turn_id",)

    turn_id: TurnId
    then: Literal["pause", "go_on"] = "pause"


class ContinueTurn(Command, frozen=True, kw_only=True, tag="continue_turn"):
    """Answer requirements of a paused turn, by tool call id; the answers carry `by`, and get `at` when they are
    accepted; neither counts when compared. `items`: by tool call id, which call's item the answer is meant for.
    Providers and agents use call ids again, so an answer without one is taken by whatever the turn asks under that id
    now."""

    SENT = ("turn_id", "answers", "items")

    turn_id: TurnId
    answers: dict[str, Answer]
    items: dict[str, str] = {}


class ResumeQueue(Command, frozen=True, kw_only=True, tag="resume_queue"):
    """Open a paused queue."""


class CloseSession(Command, frozen=True, kw_only=True, tag="close_session"):
    """Delete: interrupt what runs, cancel what waits, close when the active turn has ended."""


class EraseSession(Command, frozen=True, kw_only=True, tag="erase_session"):
    """Remove what people and agents wrote, once nothing waits or runs; numbers, digests and chain stay."""


class ForkTurn(BeginTurn, frozen=True, kw_only=True, tag="fork_turn"):
    """A new turn whose history ends inside another one. `place`: "end", "last_user" or a checkpoint's sequence, which
    the service has snapped to `sequence` before (None: the end, resolved at claim)."""

    SENT = ("source_turn_id", "place", "input")

    source_turn_id: TurnId
    place: str
    sequence: int | None = None
    input: list[Part] | None = None
    context_version: str | None = None
    metadata: dict[str, Any] | None = None


class RegenerateTurn(BeginTurn, frozen=True, kw_only=True, tag="regenerate_turn"):
    """Run a terminal turn's input again in its place. `sequence`: keep it up to that checkpoint, and ask the model
    again from there."""

    SENT = ("source_turn_id", "replace_original", "additional_instructions")

    source_turn_id: TurnId
    replace_original: bool = True
    additional_instructions: str | None = None
    sequence: int | None = None
    context_version: str | None = None
    metadata: dict[str, Any] | None = None


class CopyTurns(Command, frozen=True, kw_only=True, tag="copy_turns"):
    """Take ended turns of another session into one that was created for them. `first`: the sequence of the first of
    these events; what is wrong with their order is refused whole."""

    SENT = ("source_session_id", "first")

    source_session_id: SessionId
    first: int
    events: list[Draft]


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """What a runtime that can be asked says of a turn whose worker is gone. `completed`: it is over, with this output;
    `running`: leave it alone; `unknown`: judge by the log."""

    turn_id: TurnId
    state: Literal["completed", "running", "unknown"]
    output: str | None = None


class ClaimTurn(Command, frozen=True, kw_only=True, tag="claim_turn"):
    """Start the turn that may start now. With `take_over` also settle or go on with one whose claim is dead: only a
    worker that has seen the database for a whole lease may say so. `answered`: the runtime was asked first."""

    worker_id: WorkerId
    take_over: bool = False
    answered: Answered | None = None


class ExecutorCommand(Command, frozen=True, kw_only=True):
    """Written by the claim holder only; at most one is in flight a turn. `events` come before whatever the command
    itself adds."""

    turn_id: TurnId
    fence: Fence
    ordinal: Ordinal
    events: list[Draft] = []


class RecordEvents(ExecutorCommand, frozen=True, kw_only=True, tag="record_events"):
    """Append what the attempt produced."""


class HookJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A hook that follows the end of a turn, if the turn ends in one of `after`. `done`: it has run in line, with this
    result."""

    hook: str
    job_id: str
    after: tuple[str, ...]
    kind: Literal["hook", "evaluation"] = "hook"
    done: bool = False
    result: Any = None


class PauseTurn(ExecutorCommand, frozen=True, kw_only=True, tag="pause_turn"):
    """Wait for people; gives the claim back. `expires_in`: seconds from the pause, for questions that name no end.
    `hooks`: as with a finish, since a stored interrupt makes it one."""

    attempt: int
    frame: int
    requirements: list[Requirement]
    expires_in: float | None = None
    hooks: list[HookJob] = []


class FinishTurn(ExecutorCommand, frozen=True, kw_only=True, tag="finish_turn"):
    """End the turn; with `claim_next` the same worker starts the next one in the same transaction if it may start."""

    outcome: Literal["completed", "failed", "interrupted"]
    attempt: int
    frame: int
    output: str | None = None
    error: Failure | None = None
    usage: dict[str, Any] = {}
    claim_next: WorkerId | None = None
    hooks: list[HookJob] = []


class EndHook(Command, frozen=True, kw_only=True, tag="end_hook"):
    """The end of a background job: its result, or with `error` that it has run out of attempts. A job that ran twice
    ends once, with the first end."""

    SENT = ("job_id",)

    turn_id: TurnId
    job_id: str
    attempts: int
    result: Any = None
    error: str | None = None


class ReleaseTurn(ExecutorCommand, frozen=True, kw_only=True, tag="release_turn"):
    """Hand the turn back at its last checkpoint because this worker drains."""


ClientCommand = (
    CreateSession
    | SubmitTurn
    | CancelTurn
    | InterruptTurn
    | ContinueTurn
    | ResumeQueue
    | CloseSession
    | EraseSession
    | ForkTurn
    | RegenerateTurn
)
"""What the agent service accepts over HTTP; the rest is for workers, in process."""

_encoder = msgspec.json.Encoder(order="deterministic")


def fingerprint(command: Command) -> bytes:
    """SHA-256 over the type and what the client itself sent."""
    sent = [getattr(command, name) for name in command.SENT]
    if isinstance(command, ContinueTurn):
        sent = [command.turn_id, {k: msgspec.structs.replace(a, by="", at="") for k, a in command.answers.items()}]
        # Without items it is what it was before there were any: replies are kept for ever.
        sent += [command.items] if command.items else []
    return hashlib.sha256(_encoder.encode([type(command).__struct_config__.tag, *sent])).digest()
