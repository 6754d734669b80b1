"""The seam between the executor and whatever does the work: `execute(execution) -> frames`.

A runtime never touches the store. It reports frames in order; the executor turns them into facts and pulls the next
frame only when there is room, so a fast runtime waits."""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Protocol

import msgspec

from domain.commands import Answered
from domain.frames import RuntimeFrame
from domain.history import PastTurn
from domain.ids import SessionId, TurnId
from domain.parts import Answer, FilePart, Part, Requirement


class RuntimeFailed(Exception):
    """The work failed for a reason that the runtime can name. `message` is safe to show; `code` is one of
    docs/events.md."""

    def __init__(self, code: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call of this turn that an earlier attempt or leg committed. `output` is None while it has no final result;
    `started` says that its tool may have run; `revision` counts the snapshots of its result in the newest attempt."""

    item_id: str
    tool_call_id: str
    name: str
    idempotent: bool = False
    started: bool = False
    revision: int = 0
    output: str | None = None
    is_error: bool = False
    private: bytes | None = None


class PastPause(msgspec.Struct, frozen=True, kw_only=True):
    """A pause of this turn that is over: what was asked and what people answered, by tool call id. Providers repeat
    call ids, so answers belong to their own pause only."""

    requirements: list[Requirement]
    answers: dict[str, Answer] = {}


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a runtime can do. `max_tool_result_bytes`: None takes the executor's limit. `can_be_asked`: it is a
    `KnowingRuntime`."""

    max_tool_result_bytes: int | None = None
    can_pause: bool = False
    can_resume: bool = False
    can_be_asked: bool = False


class Gate(Protocol):
    """Stands inside every tool call."""

    async def open(self, item_id: str) -> None:
        """Returns once `tool.started` of that item is committed and the lease deadline lies ahead. A tool body runs
        after this and not before. Where the claim is lost it never returns: the execution is cancelled."""
        ...

    async def kept(self, checkpoints: int) -> None:
        """The same for the first so many checkpoints of this leg."""
        ...


class Interrupt(Protocol):
    """The wish to stop, as the runtime sees it."""

    @property
    def requested(self) -> bool: ...

    def on_request(self, stop: Callable[[], None]) -> None:
        """`stop` is called in the event loop when the wish comes, at once if it has come already. The runtime then ends
        its frames soon, with a checkpoint of what there is."""
        ...


class ArchiveBounds(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive may hold: so many files, so many bytes unpacked, unpacked bytes for a packed one."""

    entries: int = 200
    unpacked_bytes: int = 100 * 1024 * 1024
    ratio: int = 100


class Attachments(Protocol):
    """The content of files that inputs name. `file_bytes`: of one at most; `all_bytes`: of all that an execution should
    have in memory at once."""

    file_bytes: int
    all_bytes: int
    archive: ArchiveBounds

    async def read(self, part: FilePart) -> bytes:
        """The whole content. Waits for a store that is away. Raises RuntimeFailed where it is gone, or too large."""
        ...

    async def keep(self, content: bytes, *, name: str | None = None, media_type: str | None = None) -> FilePart:
        """Store it, so that an input may name it soon. Raises as `read`."""
        ...


class NoAttachments:
    """Implements `Attachments` where there are none."""

    file_bytes = all_bytes = 0
    archive = ArchiveBounds()

    async def read(self, part: FilePart) -> bytes:
        """Raises RuntimeFailed."""
        raise RuntimeFailed("agent_error", "Attachments cannot be read here.")

    async def keep(self, content: bytes, *, name: str | None = None, media_type: str | None = None) -> FilePart:
        """Raises RuntimeFailed."""
        raise RuntimeFailed("agent_error", "Attachments cannot be kept here.")


class Execution(Protocol):
    """One leg of one attempt, as the runtime sees it."""

    session_id: SessionId
    turn_id: TurnId
    attempt: int
    input: list[Part]
    context_version: str | None
    metadata: Mapping[str, Any]
    """What came with the input."""
    past: list[PastTurn]
    """The turns before this one, oldest first."""
    forked: bool
    """The turn goes on from the last of them, which may be cut at a checkpoint; the input may be empty."""
    messages: list[bytes]
    """Model messages of this turn's own earlier checkpoints: empty in a first attempt."""
    recorded: Mapping[str, RecordedCall]
    """Tool calls of this turn that are in the log, by item id, in the order of the log."""
    pauses: list[PastPause]
    """The turn's pauses, oldest first; all of them are answered."""
    tool_result_bytes: int
    gate: Gate
    interrupt: Interrupt
    attachments: Attachments

    def new_id(self) -> str:
        """A fresh id for an item."""
        ...


class Runtime(Protocol):
    """An adapter of one kind of agent object. One instance serves many executions at once."""

    capabilities: Capabilities

    def execute(self, execution: Execution) -> AsyncGenerator[RuntimeFrame, None]:
        """Frames of the work in order, `Completed` or `Paused` last. Raises RuntimeFailed, or whatever the user's code
        raises."""
        ...


class KnowingRuntime(Runtime, Protocol):
    """A runtime whose work goes on elsewhere, in a service that knows of it when the worker is dead."""

    async def query(self, session_id: SessionId, turn_id: TurnId) -> Answered:
        """What has become of a turn whose worker is gone. Asked before another worker takes it over; an error counts as
        `unknown`."""
        ...
