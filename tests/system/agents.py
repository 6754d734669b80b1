"""Agents of the system tests, as users would write them."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

from turnlog import Pause, Requirement, ToolCall, ToolResult


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


async def shop(turn: Any) -> AsyncGenerator[Any, Any]:
    """What the README's pictures show: a tool, and a question before another one."""
    yield "Let me look that order up."
    yield ToolCall(tool_call_id="c1", name="find_order", arguments={"order": 1041}, idempotent=True)
    found = {"order": 1041, "item": "rain jacket, blue", "paid": "89.00", "delivered": "three days ago"}
    yield ToolResult(tool_call_id="c1", output=json.dumps(found), final=True)
    yield "It was delivered three days ago, so it may go back. I need your word before I pay anything back."
    refund = Requirement(
        tool_call_id="c2", kind="approval", tool_name="refund", arguments={"order": 1041, "amount": "89.00"}
    )
    answers = yield Pause(requirements=[refund])
    yield "The refund is on its way." if answers["c2"].approved else "Then nothing is paid back."
