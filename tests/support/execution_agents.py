"""Agents that look at their own execution, for tests of the worker process."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from turnlog import ToolCall, ToolResult, Turn

MARKER = "MARKER-0f9c-of-the-system-prompt"

AGENTS = ("recall", "look", "block", "count", "inspector", "openai")


async def recall(turn: Turn) -> AsyncIterator[str]:
    """Says what it was told of the past, as JSON."""
    yield json.dumps([[message.role, message.text] for message in turn.history] + [["user", turn.input]])


async def look(turn: Turn) -> AsyncIterator[Any]:
    """Input: a database. Its tool looks there for its own start."""
    yield ToolCall(tool_call_id="c1", name="look", arguments={})
    yield ToolResult(tool_call_id="c1", output=await _started(turn.input, "c1"))


async def block(turn: Turn) -> AsyncIterator[str]:
    """Input: seconds. Blocks the worker's event loop for so long, as bad code does."""
    yield "blocking "
    time.sleep(float(turn.input))
    yield "done"


async def count(turn: Turn) -> AsyncIterator[Any]:
    """Input: a file. Its tool writes a line there, waits for ever the first time, and is not idempotent."""
    yield ToolCall(tool_call_id="c1", name="count", arguments={})
    with Path(turn.input).open("a") as file:
        file.write("ran\n")
    await asyncio.Event().wait()


async def _started(dsn: str, tool_call_id: str) -> str:
    connection = await asyncpg.connect(dsn)
    try:
        found = await connection.fetchval(
            "SELECT count(*) FROM events WHERE type = 'tool.started' AND payload ->> 'tool_call_id' = $1", tool_call_id
        )
    finally:
        await connection.close()
    return f"found {found}"


async def _look_three_times(history: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    results = [part for part in history[-1].parts if isinstance(part, ToolReturnPart)]
    if results:
        yield " ".join(str(result.content) for result in results)
        return
    prompts = [part.content for message in history for part in message.parts if isinstance(part, UserPromptPart)]
    for index in range(3):
        arguments = json.dumps({"dsn": str(prompts[-1])})
        yield {index: DeltaToolCall(name="look", json_args=arguments, tool_call_id=f"look-{len(history)}-{index}")}


async def _look(ctx: RunContext[None], dsn: str) -> str:
    return await _started(dsn, ctx.tool_call_id or "")


inspector = Agent(
    FunctionModel(stream_function=_look_three_times, model_name="inspector"),
    name="inspector",
    system_prompt=MARKER,
    instructions=f"{MARKER} again",
    tools=[Tool(_look, name="look")],
)


def _add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# The key and the address come from the environment when the first turn runs.
openai = Agent(
    "openai:fake-1", name="openai", system_prompt=MARKER, tools=[Tool(_add, name="add")], defer_model_check=True
)
