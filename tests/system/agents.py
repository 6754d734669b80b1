"""Agents of the system tests, as users would write them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from turnlog import ToolCall, ToolResult


async def counting(turn: Any) -> AsyncIterator[str]:
    """Input: a path. Counts aloud until the file exists."""
    number = 0
    while not Path(turn.input).exists():
        yield f"{number} "
        number += 1
        await asyncio.sleep(0.05)


async def silent_tool(turn: Any) -> AsyncIterator[str | ToolCall | ToolResult]:
    """Input: seconds. Runs a tool that says nothing for so long."""
    yield "Wait. "
    yield ToolCall(tool_call_id="c1", name="ponder", arguments={}, idempotent=True)
    await asyncio.sleep(float(turn.input))
    yield ToolResult(tool_call_id="c1", output="pondered", final=True)
    yield "Done."
