"""A demonstration agent that needs no key and no network.

`agent` is an ordinary pydantic-ai `Agent`. Its default model is deterministic: it plans tool use from the words of the
last user message and streams its answer word by word, so that streaming, tools, progress, interrupts and recovery can
be seen (and tested) at once. Any other model can be put in its place: `agent.iter(..., model="openai:gpt-5")`.

    calculate 12*7           → the `calculator` tool
    what time is it          → the `clock` tool
    write a report on X      → the `write_report` tool, which takes some seconds and reports progress
    anything else            → a few helpful sentences
"""

import ast
import asyncio
import json
import math
import operator
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic_ai import Agent, CustomEvent, ModelRetry, RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, DeltaToolCalls, FunctionModel

WORD_SECONDS = 0.03
REPORT_SECONDS = 4.0
SECTIONS = ("Summary", "Background", "Findings", "Risks", "Next steps")


# --- planning: which tools the text asks for ---------------------------------------------------------------------

_FORMULA = re.compile(r"\(*\s*-?\d[\d\s.+\-*/%()^]*")
_CALCULATE = re.compile(r"\b(?:calculate|compute|how much is|what(?:'s| is))\b(.*)", re.IGNORECASE | re.DOTALL)
_CLOCK = re.compile(r"\bwhat time\b|\btime is it\b|\bcurrent time\b", re.IGNORECASE)
_REPORT = re.compile(r"\b(?:write|draft|prepare)\b.*?\breport\b(?:\s+(?:on|about|for)\s+([^,.?!\n]+))?", re.IGNORECASE)
_PLANNED_CHARACTERS = 2000  # of the text; the patterns above are not linear


@dataclass(frozen=True)
class PlannedCall:
    tool: str
    arguments_json: str


def plan(text: str, available: Sequence[str]) -> list[PlannedCall]:
    """The tool calls that `text` asks for, in a fixed order; empty when it asks for none."""
    text = text[:_PLANNED_CHARACTERS]
    calls: list[PlannedCall] = []
    if (asked := _CALCULATE.search(text)) and (formula := _FORMULA.search(asked.group(1))):
        calls.append(PlannedCall("calculator", _arguments(expression=formula.group(0).strip(" .?"))))
    if _CLOCK.search(text):
        calls.append(PlannedCall("clock", "{}"))
    if report := _REPORT.search(text):
        calls.append(PlannedCall("write_report", _arguments(topic=(report.group(1) or "the topic").strip())))
    return [call for call in calls if call.tool in available]


def _arguments(**values: str) -> str:
    return json.dumps(values, ensure_ascii=False)


# --- the model ---------------------------------------------------------------------------------------------------


async def _stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    """One model response: tool calls when the text asks for tools not run yet, else text, word by word."""
    text, results = _last_exchange(messages)
    calls = [] if results else plan(text, [tool.name for tool in info.function_tools])
    if calls:
        async for word in _words(f"The user needs {' and '.join(call.tool for call in calls)}."):
            yield {0: DeltaThinkingPart(content=word)}
        for index, call in enumerate(calls, start=1):
            delta: DeltaToolCalls = {index: DeltaToolCall(name=call.tool, json_args=call.arguments_json)}
            yield delta
        return
    async for word in _words(_answer(text, results)):
        yield word


def _last_exchange(messages: Sequence[ModelMessage]) -> tuple[str, list[ToolReturnPart]]:
    """The last thing the user said, and the tool results that came after it."""
    text, results = "", list[ToolReturnPart]()
    for message in messages:
        if not isinstance(message, ModelRequest):
            continue
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                pieces = [part.content] if isinstance(part.content, str) else part.content
                text, results = " ".join(piece for piece in pieces if isinstance(piece, str)), []
            elif isinstance(part, ToolReturnPart):
                results.append(part)
    return text, results


def _answer(text: str, results: Sequence[ToolReturnPart]) -> str:
    if results:
        return "\n\n".join(_told(result) for result in results)
    said = " ".join(text[:200].split()) or "nothing"
    return (
        f"You said: “{said}”. I am the demonstration agent, so I answer without a language model behind me. "
        "Ask me to calculate 12*7, ask what time it is, or ask me to write a report on tidal power: "
        "each of these runs a tool whose start and result you see in this stream. "
        "Reload the page or open a second tab while I speak: nothing is lost and nothing comes twice."
    )


def _told(result: ToolReturnPart) -> str:
    if result.outcome != "success":
        return f"The tool {result.tool_name} gave no result ({result.outcome}): {result.model_response_str()}."
    match result.tool_name:
        case "calculator":
            return f"The result is {result.content}."
        case "clock":
            return f"It is {result.content}."
        case _:
            return f"Here is what {result.tool_name} gave me.\n\n{result.model_response_str()}"


async def _words(text: str) -> AsyncIterator[str]:
    for word in re.findall(r"\S+\s*", text):
        yield word
        await asyncio.sleep(WORD_SECONDS)


agent = Agent[None, str](
    FunctionModel(stream_function=_stream, model_name="demo"),
    name="demo",
    instructions="You are a helpful assistant. Use the tools for arithmetic, for the time and for reports.",
)


# --- the tools ---------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class ReportProgress(CustomEvent):
    """How far a report is: `text` for people, `fraction` from 0 to 1. Temporary: never stored."""

    text: str
    fraction: float


_OPERATIONS: dict[type[ast.AST], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


def _value(node: ast.AST) -> float:
    match node:
        case ast.Expression(body):
            return _value(body)
        case ast.Constant(int() | float() as number):
            return number
        case ast.BinOp(left, operation, right) if type(operation) in _OPERATIONS:
            return _OPERATIONS[type(operation)](_value(left), _value(right))
        case ast.UnaryOp(operation, operand) if type(operation) in _OPERATIONS:
            return _OPERATIONS[type(operation)](_value(operand))
    raise ValueError("only numbers and + - * / % ( )")


# `idempotent` tells the worker that a call whose outcome is unknown after a crash may simply be run again.
@agent.tool_plain(metadata={"idempotent": True}, retries=2)
def calculator(expression: str) -> float:
    """Evaluate an arithmetic expression of numbers, + - * / % and brackets, such as 12*7."""
    try:
        if len(expression) > 200:
            raise ValueError("longer than 200 characters")
        result = _value(ast.parse(expression.strip(), mode="eval"))
        if not math.isfinite(result):
            raise ValueError("the result is too large")
        return result
    except (ValueError, SyntaxError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ModelRetry(f"cannot evaluate {expression!r}: {error}") from error


@agent.tool_plain(metadata={"idempotent": True})
def clock() -> str:
    """Tell the current time (UTC)."""
    return datetime.now(UTC).strftime("%H:%M:%S UTC on %A, %d %B %Y")


@agent.tool(metadata={"idempotent": False})
async def write_report(ctx: RunContext[None], topic: str) -> str:
    """Write a short report on a topic. Takes some seconds and reports its progress."""
    report = [f"# {topic.strip().capitalize()}"]
    for done, section in enumerate(SECTIONS):
        await ctx.emit(ReportProgress(text=f"writing “{section}”", fraction=done / len(SECTIONS)))
        await asyncio.sleep(REPORT_SECONDS / len(SECTIONS))
        report.append(f"## {section}\n\nThis is where the {section.lower()} of {topic} would stand.")
    await ctx.emit(ReportProgress(text="done", fraction=1.0))
    return "\n\n".join(report)
