"""What passes between a runtime and the recorder, and what viewers see of it before it is committed.

Two families. *Runtime frames* are what `Runtime.execute` yields: plain facts about the work, without numbers. *Live
frames* are what the recorder publishes of an item that is still open; they have no sequence and never move a cursor
(docs/events.md)."""

from typing import Any, ClassVar, Literal

import msgspec

from domain.events.item import ItemFrames, ItemKind
from domain.parts import Requirement, Scope


class RuntimeFrame(msgspec.Struct, frozen=True, kw_only=True):
    """What all runtime frames share. `scope` is absent for the turn's own agent."""

    scope: Scope | None = None


class ResponseStarted(RuntimeFrame, frozen=True, kw_only=True):
    """The model begins a new response: text that follows belongs to a new message of this scope."""


class ItemStarted(RuntimeFrame, frozen=True, kw_only=True):
    """A text or a reasoning begins. `item_id` is minted by the runtime (`Execution.new_id`)."""

    item_id: str
    kind: Literal["text", "reasoning"]


class ItemDelta(RuntimeFrame, frozen=True, kw_only=True):
    """More text of an open item."""

    item_id: str
    text: str


class ItemEnded(RuntimeFrame, frozen=True, kw_only=True):
    """The item is whole."""

    item_id: str


class ToolCalled(RuntimeFrame, frozen=True, kw_only=True):
    """The model asked for a tool. Nothing has run yet."""

    item_id: str
    tool_call_id: str
    name: str
    arguments: dict[str, Any] = {}
    idempotent: bool = False
    needs: Literal["approval", "input", "external"] | None = None


class ToolStarted(RuntimeFrame, frozen=True, kw_only=True):
    """The tool is about to run: its body waits for `Gate.open(item_id)`."""

    item_id: str
    tool_call_id: str


class ToolProgressed(RuntimeFrame, frozen=True, kw_only=True):
    """How far a running tool is; shown, never stored."""

    item_id: str
    tool_call_id: str
    text: str | None = None
    fraction: float | None = None


class ToolResulted(RuntimeFrame, frozen=True, kw_only=True):
    """Newest state of a tool's output. `private`: what gives the exact result back to the runtime where the text alone
    does not."""

    item_id: str
    tool_call_id: str
    output: str
    is_error: bool = False
    final: bool = True
    private: bytes | None = None


class StepReported(RuntimeFrame, frozen=True, kw_only=True):
    """A step or member run opened or closed: opaque JSON."""

    name: str
    payload: Any = None


class UsageReported(RuntimeFrame, frozen=True, kw_only=True):
    """Tokens of one model request."""

    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    details: dict[str, int] = {}


class Checkpoint(RuntimeFrame, frozen=True, kw_only=True):
    """A place to resume from. `private`: the model messages that are new since the last checkpoint, in the runtime's
    own serialisation; `message_index`: how many the turn has by now."""

    reason: Literal["tool_batch", "pause", "interrupted", "end"]
    message_index: int
    private: bytes


class Together(RuntimeFrame, frozen=True, kw_only=True):
    """Frames whose events go into one append: all of them or none."""

    frames: tuple[RuntimeFrame, ...]


class Paused(RuntimeFrame, frozen=True, kw_only=True):
    """Last frame of a leg: the turn waits for people."""

    requirements: list[Requirement]


class Completed(RuntimeFrame, frozen=True, kw_only=True):
    """Last frame: the runtime has nothing more to do."""

    output: str | None = None


class Stopped(RuntimeFrame, frozen=True, kw_only=True):
    """Last frame: the work was given up by a person's answer or by itself, and has not failed. The turn ends as
    interrupted."""


class LiveFrame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The `data` of a temporary frame."""

    type: ClassVar[str]


class LiveItemStarted(LiveFrame, frozen=True, kw_only=True, omit_defaults=True):
    """An item opens."""

    type: ClassVar[str] = "item.started"

    item_id: str
    kind: ItemKind
    message_id: str | None = None
    attempt: int
    frame: int
    scope: Scope | None = None


class LiveItemDelta(LiveFrame, frozen=True, kw_only=True, omit_defaults=True):
    """Piece `index` (0, 1, 2 …) of the item's text."""

    type: ClassVar[str] = "item.delta"

    item_id: str
    index: int
    attempt: int
    frame: int
    text: str
    scope: Scope | None = None


class LiveItemSnapshot(LiveFrame, frozen=True, kw_only=True, omit_defaults=True):
    """Everything of an open item so far, for whoever joins: the next delta has `next_index`."""

    type: ClassVar[str] = "item.snapshot"

    item_id: str
    kind: ItemKind
    message_id: str | None = None
    attempt: int
    next_index: int
    text: str
    frames: ItemFrames
    scope: Scope | None = None


class LiveToolProgress(LiveFrame, frozen=True, kw_only=True, omit_defaults=True):
    """Takes no frame number: numbers of what is stored or expanded stay dense."""

    type: ClassVar[str] = "tool.progress"

    tool_call_id: str
    item_id: str
    attempt: int
    text: str | None = None
    fraction: float | None = None
    scope: Scope | None = None


_encoder = msgspec.json.Encoder()


def encode_live(session_id: str, turn_id: str, frame: LiveFrame) -> bytes:
    """The wire JSON of a temporary frame; the only encoder, so that live and expanded frames are the same bytes."""
    head = f'{{"session_id":"{session_id}","type":"{frame.type}","turn_id":"{turn_id}","data":'
    return head.encode() + _encoder.encode(frame) + b"}"
