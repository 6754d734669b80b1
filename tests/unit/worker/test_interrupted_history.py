"""P07: a turn may be interrupted anywhere; the history that the next turn's model gets is one that models accept.

Each turn here has two batches whose calls repeat their ids, text before, between and after them. It is run once for
each point that its runtime passes (behind every frame, in every tool body, in every piece of a response), and
interrupted there."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic_ai import Agent, Tool
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from domain.frames import RuntimeFrame
from domain.runtime import Capabilities, Execution, Runtime
from services.worker.executor.bounds import Bounds
from services.worker.runtimes.callable import CallableRuntime
from services.worker.runtimes.pydantic_ai import PydanticAIRuntime
from tests.support.execution import Bench
from turnlog import ToolCall, ToolResult, Turn

PROMPTS = ["first of all", "and now?"]


@dataclass(frozen=True)
class Said:
    """One message, whatever its framework: `calls` that it makes, or the call that it answers."""

    role: str
    text: str
    calls: tuple[str, ...] = ()
    answers: str | None = None


@dataclass
class Points:
    """Counts the places that a turn passes; at one of them it is interrupted."""

    at: int = -1
    passed: int = 0
    stop: Callable[[], None] = lambda: None
    asked: list[list[Said]] = field(default_factory=list)
    """What the model of each turn was given at its first request."""

    async def here(self) -> None:
        self.passed += 1
        if self.passed == self.at:
            self.stop()
            # Whatever the interrupt does it has done when the loop comes round again.
            for _ in range(5):
                await asyncio.sleep(0)


class Watched:
    """A runtime that is at a point whenever the executor has recorded a frame."""

    def __init__(self, inner: Runtime, points: Points) -> None:
        self._inner = inner
        self._points = points
        self.capabilities: Capabilities = inner.capabilities

    async def execute(self, execution: Execution) -> AsyncGenerator[RuntimeFrame, None]:
        async with aclosing(self._inner.execute(execution)) as stream:
            async for frame in stream:
                yield frame
                await self._points.here()


def callable_agent(points: Points) -> Runtime:
    async def agent(turn: Turn) -> AsyncGenerator[Any, Any]:
        points.asked.append(
            [
                *(
                    Said(m.role, m.text, tuple(call.tool_call_id for call in m.tool_calls), m.tool_call_id)
                    for m in turn.history
                ),
                Said("user", turn.input),
            ]
        )
        if turn.input == PROMPTS[1]:
            yield "Fine."
            return
        for batch in range(2):
            yield f"Batch {batch}. "
            for call in ("call_0", "call_1"):
                yield ToolCall(tool_call_id=call, name="look", arguments={"batch": batch})
                await points.here()
            for call in ("call_0", "call_1"):
                yield ToolResult(tool_call_id=call, output=f"{batch} {call}")
                await points.here()
        yield "All "
        yield "done."

    return CallableRuntime(agent)


def pydantic_ai_agent(points: Points) -> Runtime:
    async def stream(history: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        said = flat(history)
        if said[-1].role == "user":
            points.asked.append(said)
        await points.here()
        if said[-1].text == PROMPTS[1]:
            yield "Fine."
            return
        batch = sum(one.answers is not None for one in said) // 2
        if batch == 2:
            yield "All "
            await points.here()
            yield "done."
            return
        yield f"Batch {batch}. "
        for index in range(2):
            await points.here()
            arguments = f'{{"batch": {batch}, "call": {index}}}'
            yield {index: DeltaToolCall(name="look", json_args=arguments, tool_call_id=f"call_{index}")}

    async def look(batch: int, call: int) -> str:
        await points.here()
        return f"{batch} call_{call}"

    return PydanticAIRuntime(Agent(FunctionModel(stream_function=stream), tools=[Tool(look)]))


def flat(history: list[ModelMessage]) -> list[Said]:
    """Message by message, as a provider's API gets them."""
    said: list[Said] = []
    for message in history:
        if isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, UserPromptPart):
                    said.append(Said("user", str(part.content)))
                elif isinstance(part, ToolReturnPart | RetryPromptPart):
                    said.append(Said("tool", str(part.content), answers=part.tool_call_id))
        else:
            text = "".join(part.content for part in message.parts if isinstance(part, TextPart))
            calls = tuple(part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart))
            said.append(Said("assistant", text, calls))
    return said


def wrong_with(history: list[Said]) -> str | None:
    """Why an API of a model would refuse these messages: each call has one answer, right after its message and before
    anything else is said; nothing is answered that was not called; nothing is empty."""
    open_calls: list[str] = []
    for said in history:
        if said.answers is not None:
            if said.answers not in open_calls:
                return f"{said} answers no call"
            open_calls.remove(said.answers)
            continue
        if open_calls:
            return f"{open_calls} have no answer before {said}"
        if not said.text and not said.calls:
            return f"{said} is empty"
        if len(set(said.calls)) < len(said.calls):
            return f"{said} has two calls under one id"
        open_calls = list(said.calls)
    if open_calls:
        return f"{open_calls} have no answer"
    return None if history[-1] == Said("user", PROMPTS[1]) else "the prompt is not the last"


async def interrupted_at(make: Callable[[Points], Runtime], at: int) -> tuple[Points, Bench, str]:
    """The first turn, interrupted at that point; then the second one."""
    points = Points(at)
    bench = Bench(Watched(make(points), points), Bounds())
    executor = await bench.executor(PROMPTS[0])
    points.stop = executor.interrupt
    if at == 0:
        executor.interrupt()
    await executor.run()
    first = points.passed
    await bench.turn(PROMPTS[1])
    points.passed = first
    return points, bench, executor.claim.turn_id


@pytest.mark.parametrize("make", [callable_agent, pydantic_ai_agent])
async def test_p07_interrupted_at_every_boundary(make: Callable[[Points], Runtime]) -> None:
    """agentic-spring-ai#79, spring-ai-alibaba#4790."""
    whole, bench, turn = await interrupted_at(make, -1)
    assert bench.store.types(turn)[-1] == "turn.completed"
    assert whole.passed > 25
    ends = set()
    for at in range(whole.passed + 1):
        points, bench, turn = await interrupted_at(make, at)
        ends.add(bench.store.types(turn)[-1])
        history = points.asked[-1]
        assert wrong_with(history) is None, (at, wrong_with(history), history)
        assert history[0] == Said("user", PROMPTS[0]), at
        # What is in the log the model is told, each result with its own call.
        results = [(r.tool_call_id, r.output) for r in bench.store.data(turn, "tool_result.snapshot") if r.final]
        told = [(said.answers, said.text) for said in history if said.answers is not None]
        assert [one for one in told if one in results] == results, (at, told, results)
        calls = [item.tool_call for item in bench.store.data(turn, "item.completed") if item.tool_call]
        assert [call.tool_call_id for call in calls] == [call for said in history for call in said.calls], at
        texts = [item.text for item in bench.store.data(turn, "item.completed") if item.kind == "text"]
        assert "".join(said.text for said in history if said.role == "assistant").startswith("".join(texts)), at
    assert ends == {"turn.interrupted", "turn.completed"}
