"""Stands around every tool body: `tool.started` is committed before it runs, recorded results are given back
instead.

What a model is told of a failed tool is its author's to say (`ModelRetry`, `ToolFailed`) and is recorded as the result,
which viewers see too. Any other exception ends the run; of it the type is recorded (or an `AgentError`'s message)."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai import ApprovalRequired, CallDeferred, RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import ToolFailedError, ToolRetryError
from pydantic_ai.messages import ToolCallPart, ToolReturnPart

from domain import frames
from domain.runtime import Execution, RecordedCall, RuntimeFailed
from services.worker.executor.failures import short
from services.worker.runtimes.outlet import Outlet
from services.worker.runtimes.pydantic_ai.messages import arguments_of
from services.worker.runtimes.pydantic_ai.results import bounded, private_of, replayed, told


@dataclass
class ToolGate(AbstractCapability[Any]):
    """One run's gate. Ids of calls repeat between responses, so all it knows is about the batch in hand."""

    execution: Execution
    outlet: Outlet
    items: dict[str, str] = field(default_factory=dict)
    """Item ids by tool call id."""
    recorded: dict[str, RecordedCall] = field(default_factory=dict)
    """Results of an earlier attempt, by tool call id."""
    results: dict[str, ToolReturnPart] = field(default_factory=dict)
    """Results that this run has recorded, by tool call id."""

    def get_ordering(self) -> CapabilityOrdering:
        """Outside the user's own capabilities: what they do to a call is part of its body."""
        return CapabilityOrdering(position="outermost")

    def next_batch(self) -> None:
        """The batch is over: its ids mean nothing any more."""
        self.items.clear()
        self.recorded.clear()
        self.results.clear()

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: Callable[[dict[str, Any]], Awaitable[Any]],
    ) -> Any:
        recorded = self.recorded.get(call.tool_call_id)
        if recorded is not None:
            return replayed(call.tool_name, recorded)
        item_id = await self._item_of(call, tool_def)
        await self.outlet.emit(frames.ToolStarted(item_id=item_id, tool_call_id=call.tool_call_id))
        await self.execution.gate.open(item_id)
        try:
            result = await handler(args)
            given, part, text = bounded(call, result, self.execution.tool_result_bytes)
        except (ApprovalRequired, CallDeferred):
            raise  # the tool asks people: not a result
        except ToolRetryError as error:
            if isinstance(error.tool_retry, ToolReturnPart):
                await self._record(error.tool_retry, private_of(None, error.tool_retry))
            raise
        except ToolFailedError as error:
            await self._record(error.tool_failed, private_of(None, error.tool_failed))
            raise
        except SystemExit as error:
            raise RuntimeFailed("agent_error", f"The tool {call.tool_name} called sys.exit().") from error
        except Exception as error:
            await self.outlet.emit(
                frames.ToolResulted(item_id=item_id, tool_call_id=call.tool_call_id, output=short(error), is_error=True)
            )
            raise
        await self._record(part, private_of(given, part), text)
        return given

    async def resulted(self, part: ToolReturnPart) -> None:
        """A result that never passed the gate: an unknown tool, bad arguments, a refusal, an answer from outside."""
        tool_call_id = part.tool_call_id
        if tool_call_id in self.items and tool_call_id not in self.results and tool_call_id not in self.recorded:
            await self._record(part, private_of(None, part))

    async def _record(self, part: ToolReturnPart, private: bytes | None, text: str | None = None) -> None:
        self.results[part.tool_call_id] = part
        await self.outlet.emit(
            frames.ToolResulted(
                item_id=self.items[part.tool_call_id],
                tool_call_id=part.tool_call_id,
                output=told(part) if text is None else text,
                is_error=part.outcome != "success",
                private=private,
            )
        )

    async def _item_of(self, call: ToolCallPart, tool_def: ToolDefinition) -> str:
        """A call that a tool made itself is in no response: it gets an item of its own."""
        if call.tool_call_id not in self.items:
            self.items[call.tool_call_id] = self.execution.new_id()
            await self.outlet.emit(called(self.items[call.tool_call_id], call, tool_def))
        return self.items[call.tool_call_id]


def called(item_id: str, call: ToolCallPart, tool_def: ToolDefinition | None) -> frames.ToolCalled:
    """The frame of a call. `idempotent` is what the tool's metadata say."""
    kind = None if tool_def is None else tool_def.kind
    metadata = {} if tool_def is None else tool_def.metadata or {}
    return frames.ToolCalled(
        item_id=item_id,
        tool_call_id=call.tool_call_id,
        name=call.tool_name,
        arguments=arguments_of(call),
        idempotent=metadata.get("idempotent") is True,
        needs="approval" if kind == "unapproved" else "external" if kind == "external" else None,
    )
