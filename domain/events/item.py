"""Events of what an attempt produced: items, tools, checkpoints, usage."""

from typing import Any, ClassVar, Literal

import msgspec

from domain.events.base import Event, ExecutorEvent

ItemKind = Literal["text", "reasoning", "tool_call"]


class ItemFrames(msgspec.Struct, frozen=True):
    """How the item was seen live: `runs` are `[first_frame, count]` of its start, deltas and completion; `cuts` are the
    lengths in code points of its deltas and sum to the length of the text."""

    runs: list[tuple[int, int]]
    cuts: list[int]


class ToolCallData(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A tool call as the model made it."""

    tool_call_id: str
    name: str
    arguments: dict[str, Any] = {}
    idempotent: bool = False
    needs: Literal["approval", "input", "external"] | None = None


class ItemCompleted(ExecutorEvent, frozen=True, omit_defaults=True, kw_only=True):
    """A whole item. `partial`: cut by an interrupt. `continues`: the item whose text this one goes on with."""

    type: ClassVar[str] = "item.completed"

    item_id: str
    kind: ItemKind
    message_id: str | None = None
    text: str | None = None
    tool_call: ToolCallData | None = None
    partial: bool = False
    continues: str | None = None
    frames: ItemFrames


class ItemSuperseded(Event, frozen=True, omit_defaults=True, kw_only=True):
    """Items of the dead attempt `attempt` after its last checkpoint: the log keeps them, no Message shows them. Written
    by the claim that takes the turn over, so it is no frame of any attempt."""

    type: ClassVar[str] = "item.superseded"

    item_ids: list[str]
    attempt: int


class ToolStarted(ExecutorEvent, frozen=True, omit_defaults=True, kw_only=True):
    """Committed before the tool runs. `item_id` is the call's item: providers repeat call ids."""

    type: ClassVar[str] = "tool.started"

    tool_call_id: str
    item_id: str


class ToolResultSnapshot(ExecutorEvent, frozen=True, omit_defaults=True, kw_only=True):
    """Newest state of a tool's result; the `final` one is never produced a second time. `output` is text, cut once
    on a code point border when `truncated`."""

    type: ClassVar[str] = "tool_result.snapshot"

    tool_call_id: str
    item_id: str
    revision: int
    final: bool
    output: str
    is_error: bool = False
    truncated: bool = False
    original_bytes: int
    stored_bytes: int


class CheckpointReached(ExecutorEvent, frozen=True, omit_defaults=True, kw_only=True):
    """A place to resume from; the private part holds the model messages that are new since the last one."""

    type: ClassVar[str] = "checkpoint.reached"

    message_index: int
    reason: Literal["tool_batch", "pause", "interrupted", "end"]


class RuntimeEvent(ExecutorEvent, frozen=True, omit_defaults=True, kw_only=True):
    """A step or member run of the runtime, as opaque JSON of at most 16 KiB."""

    type: ClassVar[str] = "runtime.event"

    name: str
    payload: Any = None


class UsageRecorded(ExecutorEvent, frozen=True, omit_defaults=True, kw_only=True):
    """Tokens of one model request."""

    type: ClassVar[str] = "usage.recorded"

    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    details: dict[str, int] = {}
