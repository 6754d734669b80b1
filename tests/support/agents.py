"""Agents that tests serve: as users would write them, with the facade only."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from turnlog import ToolCall, ToolResult

AGENTS = ("echo", "slow", "silent", "broken", "hold", "tools", "bulk", "bulky_tool", "remember")


async def echo(turn: Any) -> AsyncIterator[str]:
    """Says the input, word by word."""
    for word in turn.input.split():
        yield word + " "


async def slow(turn: Any) -> AsyncIterator[str]:
    """Input `N SECONDS`: N deltas, that far apart."""
    count, pause = turn.input.split()
    for number in range(int(count)):
        yield f"{number} "
        await asyncio.sleep(float(pause))


async def silent(turn: Any) -> AsyncIterator[str]:
    """Says nothing."""
    for word in turn.input.split()[:0]:
        yield word


async def broken(turn: Any) -> AsyncIterator[str]:
    """Says one word, then fails."""
    yield "half "
    raise RuntimeError("as the test wanted")


async def hold(turn: Any) -> AsyncIterator[str]:
    """Input: a path. Says that it holds, and goes on when the file exists."""
    yield "holding "
    while not Path(turn.input).exists():
        await asyncio.sleep(0.02)
    yield "done"


async def tools(turn: Any) -> AsyncIterator[str | ToolCall | ToolResult]:
    """Text, a tool with a snapshot on its way, text."""
    yield "Looking "
    yield ToolCall(tool_call_id="c1", name="lookup", arguments={"q": turn.input}, idempotent=True)
    yield ToolResult(tool_call_id="c1", output="half", final=False)
    yield ToolResult(tool_call_id="c1", output=f"found {turn.input}", final=True)
    yield "found it"


async def bulk(turn: Any) -> AsyncIterator[str]:
    """Input: a number of bytes. Says so many."""
    left = int(turn.input)
    while left > 0:
        yield "x" * min(left, 65536)
        left -= 65536


async def bulky_tool(turn: Any) -> AsyncIterator[str | ToolCall | ToolResult]:
    """Input: a number of bytes. A tool result of so many."""
    yield ToolCall(tool_call_id="c1", name="read", arguments={}, idempotent=True)
    yield ToolResult(tool_call_id="c1", output="x" * int(turn.input), final=True)
    yield "read"


def remembered(prompt: list[list[str]]) -> str:
    """What `remember` says to these [role, text] pairs, its own input last."""
    return hashlib.sha256(json.dumps(prompt).encode()).hexdigest()


async def remember(turn: Any) -> AsyncIterator[str]:
    """Says a digest of all that it was told: short, and different for every past."""
    yield remembered([*([message.role, message.text] for message in turn.history), ["user", turn.input]])
