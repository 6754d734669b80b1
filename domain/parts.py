"""What people and tools hand in: input parts, requirements and answers. Shapes are permanent (docs/events.md)."""

from typing import Any, Literal

import msgspec

from domain.clock import parse_rfc3339
from domain.ids import Micros


class TextPart(msgspec.Struct, frozen=True, tag="text", tag_field="type"):
    """Plain text; never contains U+0000 or a lone surrogate (refused at the edge)."""

    text: str


class FilePart(msgspec.Struct, frozen=True, tag="file", tag_field="type"):
    """A stored attachment, named by the SHA-256 of its content."""

    blob: str
    media_type: str | None = None
    name: str | None = None
    bytes: int = 0


Part = TextPart | FilePart


class Answer(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A person's answer to one requirement."""

    approved: bool | None = None
    note: str | None = None
    arguments: dict[str, Any] | None = None
    result: Any = None
    by: str = ""
    at: str = ""

    def same_decision(self, other: "Answer") -> bool:
        """Equal apart from who said it and when: an equal repeat is fine, a contrary one is refused."""
        return (self.approved, self.note, self.arguments, self.result) == (
            other.approved,
            other.note,
            other.arguments,
            other.result,
        )


class Requirement(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a paused turn waits for: one tool call that needs a person."""

    tool_call_id: str
    kind: Literal["approval", "input", "external"]
    tool_name: str
    arguments: dict[str, Any] = {}
    fields: list[Any] | None = None
    expires_at: str | None = None
    answer: Answer | None = None
    item_id: str | None = None

    def expired(self, now: Micros) -> bool:
        """True when an expiry is set and has passed at `now`."""
        return self.expires_at is not None and parse_rfc3339(self.expires_at) <= now


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a turn failed. `code` is one of docs/events.md; `message` is safe to show; no stack trace, no secret."""

    code: str
    message: str
    retryable: bool = False


class ForkSource(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Where a forked turn's history ends: `sequence` is a checkpoint's, or that of the source's `turn.queued`
    (fork from `last_user`); None means the end, resolved at claim."""

    turn_id: str
    sequence: int | None = None


class Scope(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Which part of a composed agent speaks; absent = the turn's own agent."""

    component: str
    id: str
    run_id: str
    parent_run_id: str | None = None
    depth: int = 0


def input_text(parts: list[Part]) -> str:
    """The text parts joined by a newline: what a runtime sees as `turn.input`."""
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))
