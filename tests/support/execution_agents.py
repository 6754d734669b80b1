"""Agents that look at their own execution, for tests of the worker process. Functions only: a worker that serves them
starts at once."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg

from turnlog import ToolCall, ToolResult, Turn

AGENTS = ("recall", "look", "block", "count", "cling")


async def recall(turn: Turn) -> AsyncIterator[str]:
    """Says what it was told of the past, as JSON."""
    yield json.dumps([[message.role, message.text] for message in turn.history] + [["user", turn.input]])


async def look(turn: Turn) -> AsyncIterator[Any]:
    """Input: a database. Its tool looks there for its own start."""
    yield ToolCall(tool_call_id="c1", name="look", arguments={})
    yield ToolResult(tool_call_id="c1", output=await started_of(turn.input, "c1"))


async def block(turn: Turn) -> AsyncIterator[str]:
    """Input: seconds. Blocks the worker's event loop for so long, as bad code does."""
    yield "blocking "
    time.sleep(float(turn.input))
    yield "done"


async def cling(turn: Turn) -> AsyncIterator[str]:
    """Input: a path. Goes on when the file exists; told to stop it takes much longer than it has."""
    yield "clinging "
    try:
        while not Path(turn.input).exists():
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        await asyncio.sleep(60)
    yield "done"


async def count(turn: Turn) -> AsyncIterator[Any]:
    """Input: a file. Its tool writes a line there, waits for ever the first time, and is not idempotent."""
    yield ToolCall(tool_call_id="c1", name="count", arguments={})
    with Path(turn.input).open("a") as file:
        file.write("ran\n")
    await asyncio.Event().wait()


async def started_of(dsn: str, tool_call_id: str) -> str:
    """How many starts of that call the database holds."""
    connection = await asyncpg.connect(dsn)
    try:
        found = await connection.fetchval(
            "SELECT count(*) FROM events WHERE type = 'tool.started' AND payload ->> 'tool_call_id' = $1", tool_call_id
        )
    finally:
        await connection.close()
    return f"found {found}"
