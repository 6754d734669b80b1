"""Agents of the AgentOS tests: as users would write them, without Agno."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

from tests.support.lifecycle_agents import note, until_exists
from turnlog import Pause, Requirement, ToolCall, ToolResult, hooked, unpack_archives

SERVED = [
    *(f"{name}=tests.support.agents:{name}" for name in ("echo", "slow", "hold")),
    *(f"{name}=tests.acceptance.agentos.served:{name}" for name in ("counter", "asker", "mortal", "past", "failing")),
    "approver=tests.support.lifecycle_agents:approver",
    "reader=tests.acceptance.agentos.served:reads",
]


async def counter(turn: Any) -> AsyncGenerator[Any, Any]:
    """Text, two calls, text."""
    yield "Counting "
    yield "slowly. "
    for number in range(2):
        known = yield ToolCall(tool_call_id=f"c{number}", name="count", arguments={"n": number}, idempotent=True)
        yield ToolResult(tool_call_id=f"c{number}", output=known.output if known else f"counted {number}")
    yield "Two, "
    await asyncio.sleep(0.05)
    yield "in all."


async def asker(turn: Any) -> AsyncGenerator[Any, Any]:
    """Input: a directory. Asks two questions, then acts once, then waits for the file `go`."""
    yield "May I? "
    answers = yield Pause(
        requirements=[
            Requirement(tool_call_id=f"q{n}", kind="approval", tool_name="act", arguments={"n": n}) for n in range(2)
        ]
    )
    allowed = [n for n in range(2) if answers[f"q{n}"].approved]
    yield f"Allowed: {len(allowed)}. "
    known = yield ToolCall(tool_call_id="act", name="act", arguments={})
    if known is None:
        note(turn.input, "acted")
    yield ToolResult(tool_call_id="act", output="acted")
    await until_exists(Path(turn.input) / "go")
    yield "Done."


async def mortal(turn: Any) -> AsyncIterator[Any]:
    """Input: a directory. Its first attempt dies in mid-sentence, behind a tool that has run."""
    yield "First. "
    known = yield ToolCall(tool_call_id="t", name="look", arguments={}, idempotent=True)
    yield ToolResult(tool_call_id="t", output=known.output if known else "seen")
    for number in range(4):
        yield f"{turn.attempt}.{number} "
        await asyncio.sleep(0.05)
    if turn.attempt == 1:
        await until_exists(Path(turn.input) / "die")
        os.kill(os.getpid(), signal.SIGKILL)
    yield "Alive."


async def past(turn: Any) -> AsyncIterator[str]:
    """Says what was said before."""
    yield " | ".join(message.text for message in turn.history)


async def failing(turn: Any) -> AsyncIterator[str]:
    """Says a word and fails, unless it is asked to go on."""
    yield "half "
    if turn.input:
        raise RuntimeError("as the test wanted")


async def reader(turn: Any) -> AsyncGenerator[Any, Any]:
    """Input: a directory. Says what is in its files, and those of the past; its first attempt dies behind a tool."""
    yield ToolCall(tool_call_id="t", name="look", arguments={}, idempotent=True)
    yield ToolResult(tool_call_id="t", output="seen")
    if turn.attempt == 1 and not (Path(turn.input) / "dead").exists():
        (Path(turn.input) / "dead").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    known = [file for message in turn.history for file in message.files]
    for file in [*known, *turn.files]:
        yield f"{file.name}={(await turn.read(file)).decode()[:10]} "


reads = hooked(reader, pre=[unpack_archives])
