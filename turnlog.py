"""What agent code imports: `from turnlog import ToolCall, ToolResult`.

An agent is an async generator function that takes a `Turn` and yields what happens, or a pydantic-ai `Agent`:

    async def shout(turn):
        for word in turn.input.split():
            yield word.upper() + " "  # str: the next text
        yield ToolCall(tool_call_id="c1", name="lookup", arguments={"q": "x"}, idempotent=True)
        yield ToolResult(tool_call_id="c1", output="…")

The generator goes on after a `ToolCall` only once the call and its start are committed: run the tool after the yield.
Returning completes the turn, raising fails it. What is stored and shown of an exception is the name of its type, since
its text may quote a secret; raise `AgentError("…")` to tell people more.

After a crash, a deploy or a pause another worker starts the generator again from its beginning. What it yields up to
the last finished tool or pause is in the log already and is not shown again; a result that is in the log is what `yield
ToolCall(…)` returns, so:

    known = yield ToolCall(tool_call_id="c1", name="lookup", arguments={"q": "x"})
    output = known.output if known else lookup("x")
    yield ToolResult(tool_call_id="c1", output=output)

Hooks run before and after an agent (docs/hooks.md):

    agent = hooked(shout, pre=[no_secrets, shorten], post=[judge, webhook("https://…", secret="…")])
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from domain.parts import Answer, FilePart, Part, Requirement, TextPart
from domain.runtime import Attachments, NoAttachments
from services.worker.hooks.declared import Hook, Hooked, HookRun, Refused, evaluation, guardrail, hook, hooked
from services.worker.hooks.signing import verify_webhook
from services.worker.hooks.unpack_archives import unpack_archives
from services.worker.hooks.webhook import webhook

__all__ = [
    "IDEMPOTENT",
    "AgentError",
    "Answer",
    "Fate",
    "FilePart",
    "Hook",
    "HookRun",
    "Hooked",
    "Message",
    "Part",
    "Pause",
    "Reasoning",
    "Refused",
    "Requirement",
    "RuntimeEvent",
    "TextPart",
    "ToolCall",
    "ToolProgress",
    "ToolResult",
    "Turn",
    "Usage",
    "asked",
    "evaluation",
    "guardrail",
    "hook",
    "hooked",
    "idempotent",
    "unpack_archives",
    "verify_webhook",
    "webhook",
]

Function = TypeVar("Function", bound=Callable[..., Any])
Thing = TypeVar("Thing")

IDEMPOTENT = "__turnlog_idempotent__"
"""Name of the mark that `idempotent` leaves."""


def idempotent(thing: Thing) -> Thing:
    """Mark a tool's function, a step's function or an Agno agent, team or step: it may run again after a crash whose
    outcome is not known. Below `@tool`, if that is used. Returns the same object."""
    setattr(thing, IDEMPOTENT, True)
    return thing


class AgentError(Exception):
    """Raise it to fail the turn with a message for people: `message` (at most 2,000 characters of it) is kept for ever
    and shown to whoever may read the session, so put nothing secret in it. `retryable`: trying again may help."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.retryable = retryable


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """A tool is about to run. `idempotent`: it may run again after a crash whose outcome is not known."""

    tool_call_id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    idempotent: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResult:
    """What the tool gave, so far or, with `final`, for good. `output` that is not text is stored as its JSON."""

    tool_call_id: str
    output: Any
    final: bool = True
    is_error: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolProgress:
    """How far the tool is, as text or as a fraction from 0 to 1: shown, never stored."""

    tool_call_id: str
    text: str | None = None
    fraction: float | None = None


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The next piece of what the agent thinks aloud; shown apart from its answer."""

    text: str


@dataclass(frozen=True, slots=True)
class RuntimeEvent:
    """A step of yours, stored as it is: JSON of at most 16 KiB."""

    name: str
    payload: Any = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens of one model request."""

    model: str
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause:
    """Wait for people: `answers = yield Pause(requirements=[Requirement(...)])` gives a dict of answers by tool call
    id.

    The process may be another one by then: the generator is started again from its beginning, and what it yields up to
    this pause is taken as said already. So it must come to the same pause again; look at what `yield ToolCall(…)`
    returns before running a tool."""

    requirements: Sequence[Requirement]


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One message of the past. An assistant's may have tool calls, a tool's names the call it answers, a user's may
    have files, which `Turn.read` reads."""

    role: Literal["user", "assistant", "tool"]
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    files: tuple[FilePart, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """The turn to execute. `input` is the text of `parts`; `history` are the messages of the turns before it, oldest
    first; `recorded` are results by tool call id that an earlier attempt of this turn committed: do not produce them
    again. Where a call id is used for several calls it shows the result of the one in hand."""

    input: str
    parts: Sequence[Part]
    history: Sequence[Message]
    session_id: str
    turn_id: str
    attempt: int
    recorded: Mapping[str, ToolResult]
    context_version: str | None = None
    attachments: Attachments = field(default=NoAttachments(), repr=False, compare=False)

    @property
    def files(self) -> list[FilePart]:
        """The files among the parts."""
        return [part for part in self.parts if isinstance(part, FilePart)]

    async def read(self, part: FilePart) -> bytes:
        """The content of a file, all of it. It fails the turn where the file is gone, or larger than is allowed."""
        return await self.attachments.read(part)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fate:
    """What has become of a turn whose worker died: its work went on elsewhere and is `completed`, with that output; it
    is still `running` there, so leave it alone; or nobody knows (`unknown`), so that the log decides."""

    state: Literal["completed", "running", "unknown"]
    output: str | None = None


def asked(query: Callable[[str], Awaitable[Fate]]) -> Callable[[Function], Function]:
    """For an agent whose work goes on in another service: `await query(turn_id)` is asked before a dead worker's turn
    is taken over by the next one. An error, or more than a few seconds, counts as `unknown`.

        @asked(by_service)
        async def agent(turn): ...
    """

    def mark(function: Function) -> Function:
        function.query = query  # type: ignore[attr-defined]
        return function

    return mark
