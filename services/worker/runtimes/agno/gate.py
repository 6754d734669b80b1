"""Stands around every tool that a model calls: `tool.started` is committed before it runs, recorded results are given
back instead.

Agno awaits no asynchronous `pre_hook` of a synchronous tool, and swallows what a `pre_hook` raises (then the tool
runs), so the gate is one step further out: `arun_function_call`, through which all calls of agents and teams go, first
runs and continued ones alike (docs/adr/0006-agno.md)."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from agno.exceptions import AgentRunException, RetryAgentRun, StopAgentRun
from agno.tools.function import FunctionCall, FunctionExecutionResult, ToolResult
from agno.utils.timer import Timer

from domain import frames
from domain.runtime import RecordedCall
from services.worker.executor.failures import short
from services.worker.runtimes.agno import events
from services.worker.runtimes.agno.declared import is_idempotent
from services.worker.runtimes.agno.runs import Run, calling


class Private(msgspec.Struct, omit_defaults=True):
    """What a call did beside its result: `state` is the session state that it left, `stop` that it raised to end the
    run (or, false, to have it tried again)."""

    state: dict[str, Any] | None = None
    stop: bool | None = None

    def encoded(self) -> bytes | None:
        """None where there is nothing of it."""
        return None if self.state is None and self.stop is None else msgspec.json.encode(self)


async def gated(run: Run, function_call: FunctionCall, call: Any) -> Any:
    """Run a tool once its start is committed; or give back what the log says it gave."""
    call_id = function_call.call_id or ""
    item_id = run.items.get(call_id)
    if item_id is None:
        # A call that no response of a model made.
        item_id = run.new_item(call_id)
        name = function_call.function.name
        await run.conductor.emit(
            frames.ToolCalled(
                item_id=item_id,
                tool_call_id=call_id,
                name=name,
                arguments=function_call.arguments or {},
                idempotent=is_idempotent(function_call.function),
                scope=run.scope,
            )
        )
    known = run.recorded(item_id)
    if known is not None:
        return _handed_back(function_call, known)
    run.quiet = False
    await run.conductor.emit(frames.ToolStarted(item_id=item_id, tool_call_id=call_id, scope=run.scope))
    await run.conductor.execution.gate.open(item_id)
    before = _state(function_call)
    token = calling.set(item_id)
    try:
        success, timer, made, result = await call(function_call)
    except Exception as error:
        await run.resulted(call_id, short(error), is_error=True)
        raise
    finally:
        calling.reset(token)
    private = Private(state=_changed(before, _state(function_call)))
    if isinstance(success, AgentRunException):
        private.stop = bool(success.stop_execution)
        await run.resulted(call_id, run.cut(str(made.error or success)), is_error=True, private=private.encoded())
    elif not success:
        await run.resulted(call_id, run.cut(str(made.error or "")), is_error=True, private=private.encoded())
    elif hasattr(made.result, "__anext__"):
        made.result = result.result = _inside(item_id, made.result)
    elif not _streams(made.result):
        if isinstance(made.result, ToolResult):
            made.result.content = text = run.cut(made.result.content)
        else:
            text = run.cut(str(made.result))
            if text != str(made.result):
                made.result = result.result = text
        await run.resulted(call_id, text, private=private.encoded())
    return success, timer, made, result


async def _inside(item_id: str, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """A tool that is a generator has only begun; Agno goes through it in a task of its own."""
    try:
        while True:
            token = calling.set(item_id)
            try:
                piece = await anext(result)
            except StopAsyncIteration:
                return
            finally:
                calling.reset(token)
            yield piece
    finally:
        close = getattr(result, "aclose", None)
        if close is not None:
            await close()


def _streams(result: Any) -> bool:
    """The same of a plain generator."""
    return hasattr(result, "__next__") and hasattr(result, "send")


def _handed_back(function_call: FunctionCall, known: RecordedCall) -> Any:
    timer = Timer()  # type: ignore[no-untyped-call]
    timer.start()
    timer.stop()
    output = known.output or ""
    private = Private() if known.private is None else msgspec.json.decode(known.private, type=Private)
    context = function_call.function._run_context
    if private.state is not None and context is not None and context.session_state is not None:
        context.session_state.clear()
        context.session_state.update(private.state)
    if not known.is_error:
        function_call.result = output
        done = FunctionExecutionResult(status="success", result=output, updated_session_state=private.state)
        return True, timer, function_call, done
    function_call.error = output
    failed = FunctionExecutionResult(status="failure", error=output)
    if private.stop is None:
        return False, timer, function_call, failed
    return (StopAgentRun(output) if private.stop else RetryAgentRun(output)), timer, function_call, failed


def _state(function_call: FunctionCall) -> bytes | None:
    """The session state, as JSON; None where there is none that can be kept."""
    context = function_call.function._run_context
    state = None if context is None else context.session_state
    return msgspec.json.encode(state) if isinstance(state, dict) and events.is_json(state) else None


def _changed(before: bytes | None, after: bytes | None) -> dict[str, Any] | None:
    return None if after is None or before == after else msgspec.json.decode(after, type=dict[str, Any])
