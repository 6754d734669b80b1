"""An agent whose tool blocks its worker's event loop, as users' synchronous code does."""

import time
from collections.abc import AsyncIterator
from typing import Any

from tests.support.lifecycle_agents import note
from turnlog import ToolCall, ToolResult, Turn


async def blocking(turn: Turn) -> AsyncIterator[Any]:
    """Input: `SECONDS DIRECTORY`. Notes when the tool has begun and when it has ended."""
    seconds, directory = turn.input.split(" ", 1)
    yield "Before. "
    known = yield ToolCall(tool_call_id="c", name="block")
    if known is None:
        note(directory, "began")
        time.sleep(float(seconds))
        note(directory, "ended")
    yield ToolResult(tool_call_id="c", output="blocked")
    yield "After."
