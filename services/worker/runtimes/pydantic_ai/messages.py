"""Model messages as bytes: exactly what pydantic-ai serialises, appended checkpoint by checkpoint."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
from pydantic import ValidationError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    repair_messages,
)
from pydantic_core import PydanticSerializationError

from domain.history import PastTurn
from domain.runtime import RuntimeFailed
from services.worker.executor.values import plain
from services.worker.runtimes.pydantic_ai.files import asked


def encode(messages: Sequence[ModelMessage]) -> bytes:
    """What a checkpoint keeps."""
    try:
        return ModelMessagesTypeAdapter.dump_json(list(messages))
    except PydanticSerializationError:
        # A lone surrogate out of a model's JSON, most likely; UTF-8 cannot carry it.
        tree = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
        return msgspec.json.encode(plain(tree, "a model message"))


def decode(blob: bytes) -> list[ModelMessage]:
    """Raises RuntimeFailed where another kind of agent wrote it."""
    try:
        return ModelMessagesTypeAdapter.validate_json(blob)
    except ValidationError:
        # The error shows what it was given, which is private: it is not chained.
        raise RuntimeFailed(
            "agent_error", "The past of this session was written by another kind of agent: give the new one its own id."
        ) from None


def past_messages(past: Sequence[PastTurn]) -> list[ModelMessage]:
    """All messages of the turns before, with dangling tool calls closed. A turn that left none is known by its
    input."""
    messages: list[ModelMessage] = []
    for turn in past:
        own = [message for blob in turn.messages for message in decode(blob)]
        messages += [one for one in own if _says(one)] or [ModelRequest(parts=[UserPromptPart(asked(turn.input))])]
        # Turn by turn, since a provider may repeat its call ids in the next one.
        messages = repair_messages(messages)
    return messages


def _says(message: ModelMessage) -> bool:
    """A response that was cut off before its first word says nothing, and there are models that refuse such."""
    if isinstance(message, ModelRequest):
        return True
    return any(part.part_kind not in ("text", "thinking") or part.has_content() for part in message.parts)


def dangling_calls(messages: Sequence[ModelMessage]) -> list[ToolCallPart]:
    """Calls of the last response that no request after it answers."""
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ModelResponse):
            return [call for call in message.tool_calls if call.tool_call_id not in answered]
        answered |= {part.tool_call_id for part in message.parts if isinstance(part, ToolReturnPart)}
    return []


def with_results(messages: Sequence[ModelMessage], results: dict[str, ToolReturnPart]) -> list[ModelMessage]:
    """The messages of an interrupted run, with those results that were recorded but had not reached the run yet."""
    missing = [results[call.tool_call_id] for call in dangling_calls(messages) if call.tool_call_id in results]
    return [*messages, ModelRequest(parts=missing)] if missing else list(messages)


def without_calls(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The messages, the response at their end with what it says only."""
    *before, last = messages
    if not isinstance(last, ModelResponse):
        return list(messages)
    return [*before, replace(last, parts=[part for part in last.parts if not isinstance(part, ToolCallPart)])]


def arguments_of(call: ToolCallPart) -> dict[str, Any]:
    """As an object; what is not JSON is kept as text."""
    return call.args_as_dict()
