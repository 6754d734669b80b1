"""pydantic-ai agents for tests of the worker process, on a scripted model and on the OpenAI wire."""

import json
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from tests.support.execution_agents import started_of

MARKER = "MARKER-0f9c-of-the-system-prompt"

AGENTS = ("inspector", "openai")


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
    return await started_of(dsn, ctx.tool_call_id or "")


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
