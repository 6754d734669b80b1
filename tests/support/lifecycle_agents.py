"""Agents that wait, ask, die and count what they do, for tests of the life of turns.

Those with a directory for an input keep their counts there: a line a run in a file, so that a process that dies does
not take them with it.
"""

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, Tool
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from turnlog import Fate, Pause, Requirement, ToolCall, ToolResult, Turn, asked

AGENTS = ("steps", "batches", "approver", "mute", "remote", "deadly", "staller", "quiet")


def note(directory: str | Path, name: str, line: str = "x") -> None:
    """One more line in a file, whole or not at all."""
    with (Path(directory) / name).open("a") as file:
        file.write(line + "\n")


def lines(directory: str | Path, name: str) -> list[str]:
    """What was noted."""
    path = Path(directory) / name
    return path.read_text().splitlines() if path.exists() else []


async def until_exists(path: Path) -> None:
    while not path.exists():
        await asyncio.sleep(0.02)


async def steps(turn: Turn) -> AsyncGenerator[Any, Any]:
    """Input: JSON `{file, tools, pauses, seconds}`. Tools that count their runs in the file, every second one declared
    idempotent, all of them under the same call id; questions between them."""
    work = json.loads(turn.input)
    yield "Starting. "
    for number in range(work["tools"]):
        idempotent = number % 2 == 0
        known = yield ToolCall(tool_call_id="call_0", name="work", arguments={"n": number}, idempotent=idempotent)
        if known is None:
            with Path(work["file"]).open("a") as file:
                file.write(f"{turn.turn_id} {number} {'again' if idempotent else 'once'}\n")
            await asyncio.sleep(work["seconds"])
        output = known.output if known else f"{turn.turn_id} {number}"
        assert output == f"{turn.turn_id} {number}", "results never mix"
        yield ToolResult(tool_call_id="call_0", output=output)
        yield f"Did {number}. "
        if number < work["pauses"]:
            answers = yield Pause(
                requirements=[
                    Requirement(tool_call_id=f"q{one}", kind="approval", tool_name="go_on", arguments={"n": number})
                    for one in range(2)
                ]
            )
            yield f"Allowed {sum(bool(answer.approved) for answer in answers.values())}. "
    yield "Finished."


def _prompt(history: list[ModelMessage]) -> str:
    said = [part.content for message in history for part in message.parts if isinstance(part, UserPromptPart)]
    return str(said[-1])


def _since_prompt(history: list[ModelMessage]) -> list[ToolReturnPart]:
    found: list[ToolReturnPart] = []
    for message in history:
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                found = []
            elif isinstance(part, ToolReturnPart):
                found.append(part)
    return found


async def _two_batches(history: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    """Two batches of two calls, all of whose ids repeat; then what came of them."""
    directory = _prompt(history)
    note(directory, "asked")
    results = _since_prompt(history)
    if len(results) < 4:
        round_ = len(results) // 2
        yield f"Batch {round_}. "
        for index, name in enumerate(("quick", "slow")):
            arguments = json.dumps({"directory": directory, "round": round_})
            yield {index: DeltaToolCall(name=name, json_args=arguments, tool_call_id=f"call_{index}")}
        return
    yield " ".join(str(part.content) for part in results)


def _quick(directory: str, round: int) -> str:
    """Runs once at most."""
    note(directory, "quick", str(round))
    return f"quick{round}"


async def _slow(directory: str, round: int) -> str:
    """May run again; waits for the file `go`."""
    note(directory, "slow", str(round))
    await until_exists(Path(directory) / "go")
    return f"slow{round}"


batches = Agent(
    FunctionModel(stream_function=_two_batches, model_name="batches"),
    name="batches",
    tools=[Tool(_quick, name="quick"), Tool(_slow, name="slow", metadata={"idempotent": True})],
)


async def _ask_first(history: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    """Prompt: JSON `{directory, calls, rounds}`: so many calls that need approval, so many times."""
    work = json.loads(_prompt(history))
    note(work["directory"], "asked")
    done = len(_since_prompt(history)) // work["calls"]
    if done == work["rounds"]:
        yield "Done: " + " ".join(str(part.content) for part in _since_prompt(history))
        return
    yield f"Round {done}. "
    for index in range(work["calls"]):
        arguments = json.dumps({"directory": work["directory"], "what": f"{done}.{index}"})
        yield {index: DeltaToolCall(name="act", json_args=arguments, tool_call_id=f"call_{index}")}


def _act(directory: str, what: str) -> str:
    note(directory, "ran", what)
    return f"did {what}"


approver = Agent(
    FunctionModel(stream_function=_ask_first, model_name="approver"),
    name="approver",
    tools=[Tool(_act, name="act", requires_approval=True)],
)


async def _think_long(history: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """A model call that does not stream and takes for ever."""
    note(_prompt(history), "asked")
    await asyncio.Event().wait()
    return ModelResponse(parts=[TextPart("never")])


mute = Agent(FunctionModel(function=_think_long, model_name="mute"), name="mute")


def fate_file(turn_id: str) -> Path:
    """Where a test says what has become of a turn of `remote`."""
    return Path(tempfile.gettempdir()) / f"turnlog-test-fate-{turn_id}"


async def _fate(turn_id: str) -> Fate:
    path = fate_file(turn_id)
    state, _, output = path.read_text().partition(":") if path.exists() else ("unknown", "", "")
    with path.with_suffix(".asked").open("a") as file:
        file.write("x\n")
    if state == "broken":
        raise ConnectionError
    return Fate(state=state, output=output or None)  # type: ignore[arg-type]


@asked(_fate)
async def remote(turn: Turn) -> AsyncIterator[str]:
    """Input: a directory. Its work goes on elsewhere; `go` there lets it end here."""
    yield f"attempt {turn.attempt} "
    note(turn.input, "attempts", str(turn.attempt))
    await until_exists(Path(turn.input) / "go")
    yield "here"


async def deadly(turn: Turn) -> AsyncIterator[str]:
    """Input: a directory. Kills its worker, each time, until there is a file `safe`."""
    if (Path(turn.input) / "safe").exists():
        yield "alive"
        return
    note(turn.input, "attempts", str(turn.attempt))
    yield "And now "
    await asyncio.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)


async def staller(turn: Turn) -> AsyncIterator[Any]:
    """Input: a directory. Runs a tool that is not idempotent until `go` is there, then says so."""
    yield "Text before. "
    known = yield ToolCall(tool_call_id="call_0", name="stall")
    if known is None:
        note(turn.input, "ran")
        await until_exists(Path(turn.input) / "go")
    yield ToolResult(tool_call_id="call_0", output="stalled")
    yield "Text after."


async def quiet(turn: Turn) -> AsyncIterator[str]:
    """Says one word and then nothing for ever, outside any tool."""
    yield "quiet "
    await asyncio.Event().wait()
