"""What a callable agent is told of the past: its own messages, kept as JSON with each checkpoint."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from domain.history import PastTurn
from domain.parts import FilePart, Part, input_text
from domain.runtime import RuntimeFailed
from turnlog import Message, ToolCall


class Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call inside a line."""

    tool_call_id: str
    name: str
    arguments: dict[str, Any] = {}


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One stored message."""

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    tool_calls: list[Call] = []
    tool_call_id: str | None = None
    files: list[FilePart] = []


_lines = msgspec.json.Decoder(list[Line])


def encode(lines: Sequence[Line]) -> bytes:
    """What a checkpoint keeps."""
    return msgspec.json.encode(list(lines))


def decode(blob: bytes) -> list[Line]:
    """Raises RuntimeFailed where another kind of agent wrote it."""
    try:
        return _lines.decode(blob)
    except msgspec.ValidationError as error:
        raise RuntimeFailed(
            "agent_error", "The past of this session was written by another kind of agent: give the new one its own id."
        ) from error


def history(past: Sequence[PastTurn]) -> list[Message]:
    """All messages of the turns before. A turn that left none is known by its input; calls without a result are
    closed."""
    lines: list[Line] = []
    for turn in past:
        own = [line for blob in turn.messages for line in decode(blob)]
        lines += closed(own) if own else [asked(turn.input)]
    return [message(line) for line in lines]


def asked(parts: Sequence[Part]) -> Line:
    """What the user said, and the files that came with it."""
    return Line(role="user", text=input_text(list(parts)), files=[part for part in parts if isinstance(part, FilePart)])


def closed(lines: Sequence[Line]) -> list[Line]:
    """The lines as models take them: behind each line that calls, one result for each of its calls, whether there is
    one or not; and no line that says nothing, as one that was cut off before its first word.

    Call ids may repeat: a result is that of the newest call with its id."""
    groups: list[list[Line]] = []
    open_calls: dict[str | None, list[list[Line]]] = {}
    for line in lines:
        if line.role == "tool":
            if waiting := open_calls.get(line.tool_call_id):
                waiting.pop().append(line)
        elif line.role == "user" or line.text or line.tool_calls:
            groups.append([line])
            for call in line.tool_calls:
                open_calls.setdefault(call.tool_call_id, []).append(groups[-1])
    for tool_call_id, waiting in open_calls.items():
        for group in waiting:
            group.append(Line(role="tool", text="The call was interrupted.", tool_call_id=tool_call_id))
    return [line for group in groups for line in group]


def message(line: Line) -> Message:
    """As agent code sees it."""
    return Message(
        role=line.role,
        text=line.text,
        tool_calls=tuple(
            ToolCall(tool_call_id=call.tool_call_id, name=call.name, arguments=call.arguments)
            for call in line.tool_calls
        ),
        tool_call_id=line.tool_call_id,
        files=tuple(line.files),
    )
