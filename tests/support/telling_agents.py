"""Agents that put what they were told into every place from which it could get into a log."""

import logging
from collections.abc import AsyncIterator
from typing import Any

from turnlog import AgentError, Pause, Requirement, ToolCall, ToolResult


async def asks(turn: Any) -> AsyncIterator[Any]:
    """Asks a person, with the input in the question."""
    question = Requirement(tool_call_id="q", kind="approval", tool_name="ask", arguments={"about": turn.input})
    answers = yield Pause(requirements=[question])
    yield f"{turn.input} {answers}"


async def fails(turn: Any) -> AsyncIterator[str]:
    """Says it, then fails with it: once in words for people, behind an exception that quotes it."""
    yield turn.input
    try:
        raise ValueError(turn.input)
    except ValueError as error:
        raise AgentError(f"about {turn.input}") from error


async def fails_in_tool(turn: Any) -> AsyncIterator[Any]:
    """A tool with the input as its argument, which fails with it."""
    yield ToolCall(tool_call_id="c", name="try", arguments={"q": turn.input}, idempotent=True)
    yield ToolResult(tool_call_id="c", output=turn.input, is_error=True)
    logging.getLogger("somebodys.library").debug("a library of the user's says what it does")
    raise KeyError(turn.input)
