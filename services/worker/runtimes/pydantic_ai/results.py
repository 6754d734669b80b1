"""Results of tools: what is recorded of them, and how a recorded one is given back."""

from typing import Any

from pydantic_ai import ToolReturn
from pydantic_ai.exceptions import ToolFailedError, ToolRetryError
from pydantic_ai.messages import ModelRequest, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_core import PydanticSerializationError

from domain.runtime import RecordedCall, RuntimeFailed
from domain.texts import made_safe
from services.worker.executor.tool_results import cut
from services.worker.runtimes.pydantic_ai import messages


def bounded(call: ToolCallPart, result: Any, limit: int) -> tuple[Any, ToolReturnPart, str]:
    """The result as the model gets it, the part that says so, and its whole text. What is longer than the limit becomes
    its cut text, so that the model, the log and a later attempt see the same. Raises RuntimeFailed where it has no JSON
    form."""
    made = result if isinstance(result, ToolReturn) else ToolReturn(return_value=result)
    part = ToolReturnPart(call.tool_name, made.return_value, call.tool_call_id, metadata=made.metadata)
    try:
        text = part.model_response_str()
    except PydanticSerializationError:
        raise RuntimeFailed("agent_error", f"The result of {call.tool_name} has no JSON form.") from None
    kept = cut(text, limit)
    if not kept.truncated and kept.text == text:
        return result, part, text
    part = ToolReturnPart(call.tool_name, kept.text, call.tool_call_id, metadata=made.metadata)
    if isinstance(result, ToolReturn):
        return ToolReturn(return_value=kept.text, content=made.content, metadata=made.metadata), part, text
    return kept.text, part, text


def private_of(result: Any, part: ToolReturnPart) -> bytes | None:
    """What gives the exact result back where the recorded text alone does not."""
    content = result.content if isinstance(result, ToolReturn) else None
    if part.outcome == "success" and isinstance(part.content, str) and content is None and part.metadata is None:
        return None
    parts: list[Any] = [part, *([UserPromptPart(content)] if content else [])]
    return messages.encode([ModelRequest(parts=parts)])


def replayed(name: str, recorded: RecordedCall) -> Any:
    """The recorded result, from inside the gate: returned, or raised as the tool raised it."""
    if recorded.private is None:
        return recorded.output
    request = messages.decode(recorded.private)[0]
    part, *rest = request.parts
    if not isinstance(part, ToolReturnPart):
        raise RuntimeFailed("agent_error", f"The recorded result of {name} cannot be read.")
    if part.outcome == "retried":
        raise ToolRetryError(part)
    if part.outcome == "failed":
        raise ToolFailedError(part)
    content = rest[0].content if rest and isinstance(rest[0], UserPromptPart) else None
    return ToolReturn(return_value=part.content, content=content, metadata=part.metadata)


def told(part: ToolReturnPart) -> str:
    """What the model sees of it."""
    return made_safe(part.model_response_str())
