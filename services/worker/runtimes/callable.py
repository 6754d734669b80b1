"""Runs an async generator function: what it yields, in order, each gated at its yield."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from types import MappingProxyType
from typing import Any, Literal

import msgspec

import turnlog
from domain import frames
from domain.commands import Answered
from domain.events.item import ItemKind
from domain.ids import SessionId, TurnId
from domain.parts import Answer, Requirement, input_text
from domain.runtime import Capabilities, Execution, RecordedCall, RuntimeFailed
from domain.texts import made_safe
from services.worker.executor.tool_results import cut
from services.worker.runtimes import transcript
from services.worker.runtimes.calls import Calls
from services.worker.runtimes.outlet import Outlet
from services.worker.runtimes.transcript import Call, Line
from services.worker.runtimes.yielded import check

AgentFunction = Callable[[turnlog.Turn], AsyncGenerator[Any, Any]]


class CallableRuntime:
    """Implements `domain.runtime.KnowingRuntime`; it knows something where the function has a `query`."""

    def __init__(self, function: AgentFunction) -> None:
        self._function = function
        self._query = getattr(function, "query", None)
        self.capabilities = Capabilities(can_pause=True, can_be_asked=self._query is not None)

    def execute(self, execution: Execution) -> AsyncGenerator[frames.RuntimeFrame, None]:
        return Outlet().stream(lambda outlet: Play(self._function, execution, outlet).run())

    async def query(self, session_id: SessionId, turn_id: TurnId) -> Answered:
        """See `KnowingRuntime`. Raises whatever the user's function raises."""
        told = None if self._query is None else await self._query(turn_id)
        if not isinstance(told, turnlog.Fate):
            return Answered(turn_id=turn_id, state="unknown")
        output = None if told.output is None else made_safe(told.output)
        return Answered(turn_id=turn_id, state=told.state, output=output)


class Play:
    """One run of the generator.

    A later attempt or leg starts it again from its beginning. What it yields up to the last checkpoint is in the log
    already and is passed over, so it has to take the same way again; where it makes another call, or another pause, it
    has left that way, and what it yields counts from there."""

    def __init__(self, function: AgentFunction, execution: Execution, outlet: Outlet) -> None:
        self._function = function
        self._execution = execution
        self._outlet = outlet
        self._text: list[str] = []
        self._open: tuple[str, ItemKind] | None = None
        self._response_over = True
        self._calls = Calls(execution.recorded.values())
        self._lines: list[Line] = []
        if execution.input:
            self._lines.append(transcript.asked(execution.input))
        self._kept = sum(len(transcript.decode(blob)) for blob in execution.messages)
        self._pauses = 0
        self._repeating = self._kept > 0 or bool(execution.pauses)
        self._over = False

    async def run(self) -> None:
        """Until the generator returns, pauses, fails or is interrupted."""
        task = asyncio.current_task()
        assert task is not None

        def stop() -> None:
            if not self._over:
                task.cancel()

        self._execution.interrupt.on_request(stop)
        try:
            output = await self._play()
        except asyncio.CancelledError:
            if not self._execution.interrupt.requested:
                raise
            task.uncancel()
            await self._checkpoint("interrupted")
            return
        except Exception:
            await self._checkpoint("interrupted")
            raise
        if output is not None:
            await self._outlet.emit(frames.Completed(output=output))

    async def _play(self) -> str | None:
        """The text of the last message; None after a pause."""
        answer: Any = None
        async with aclosing(self._function(self._turn())) as generator:
            while True:
                try:
                    thing = await generator.asend(answer)
                except StopAsyncIteration:
                    break
                if isinstance(thing, turnlog.Pause):
                    await self._close_item()
                    self._response_over = True
                    answer = self._answers(thing)
                    if answer is None:
                        self._over = True
                        await self._checkpoint("pause")
                        asked = [self._about(requirement) for requirement in thing.requirements]
                        await self._outlet.emit(frames.Paused(requirements=asked))
                        return None
                else:
                    await self._handle(thing)
                    answer = None
                    if isinstance(thing, turnlog.ToolCall):
                        answer = self._calls.visible.get(thing.tool_call_id)
        await self._close_item()
        self._over = True
        await self._checkpoint("end")
        return next((line.text for line in reversed(self._lines) if line.role == "assistant"), "")

    def _answers(self, pause: turnlog.Pause) -> dict[str, Answer] | None:
        """What people said at this pause; None where they have not been asked yet. A later pause may ask under the same
        call ids, so the first one of the run is the first one of the log."""
        ids = {requirement.tool_call_id for requirement in pause.requirements}
        known = self._execution.pauses[self._pauses : self._pauses + 1] if self._repeating else []
        if not known or ids != {requirement.tool_call_id for requirement in known[0].requirements}:
            self._leave(len(self._lines))
            return None
        self._pauses += 1
        self._arrive()
        return dict(known[0].answers)

    def _about(self, requirement: Requirement) -> Requirement:
        """A question about a call that is in hand names its item."""
        if requirement.item_id is not None or not self._calls.is_open(requirement.tool_call_id):
            return requirement
        return msgspec.structs.replace(requirement, item_id=self._calls.item_of(requirement.tool_call_id))

    def _arrive(self) -> None:
        """At a pause or a result: is this where the log ends?"""
        if self._repeating and self._pauses == len(self._execution.pauses) and len(self._lines) >= self._kept:
            self._repeating = False

    def _leave(self, line: int) -> None:
        """From `line` on this run goes another way than the log."""
        if self._repeating:
            self._repeating = False
            self._kept = line

    async def _handle(self, thing: Any) -> None:
        check(thing)
        match thing:
            case str():
                await self._say("text", thing)
            case turnlog.Reasoning():
                await self._say("reasoning", thing.text)
            case turnlog.ToolCall():
                await self._call(thing)
            case turnlog.ToolResult():
                await self._result(thing)
            case turnlog.ToolProgress():
                await self._emit(
                    frames.ToolProgressed(
                        item_id=self._calls.item_of(thing.tool_call_id),
                        tool_call_id=thing.tool_call_id,
                        text=thing.text,
                        fraction=thing.fraction,
                    )
                )
            case turnlog.RuntimeEvent():
                await self._close_item()
                await self._emit(frames.StepReported(name=thing.name, payload=thing.payload))
            case turnlog.Usage():
                await self._emit(
                    frames.UsageReported(
                        model=thing.model, input_tokens=thing.input_tokens, output_tokens=thing.output_tokens
                    )
                )
            case _:
                raise RuntimeFailed("agent_error", f"The agent yielded a {type(thing).__name__}, which means nothing.")

    async def _say(self, kind: Literal["text", "reasoning"], text: str) -> None:
        if not text:
            return
        if self._open is None or self._open[1] != kind:
            await self._close_item()
            self._settle_recorded()
            if self._response_over:
                self._response_over = False
                self._lines.append(Line(role="assistant"))
                await self._emit(frames.ResponseStarted())
            self._open = (self._execution.new_id(), kind)
            await self._emit(frames.ItemStarted(item_id=self._open[0], kind=kind))
        if kind == "text":
            self._text.append(text)
        await self._emit(frames.ItemDelta(item_id=self._open[0], text=text))

    async def _close_item(self) -> None:
        self._keep_text()
        if self._open is not None:
            item_id, self._open = self._open[0], None
            await self._emit(frames.ItemEnded(item_id=item_id))

    def _keep_text(self) -> None:
        if self._text:
            self._change(lambda line: msgspec.structs.replace(line, text=line.text + "".join(self._text)))
            self._text.clear()

    def _change(self, change: Callable[[Line], Line]) -> None:
        """Of the assistant's line of this response; a call without text makes one."""
        if self._response_over or self._lines[-1].role != "assistant":
            self._response_over = False
            self._lines.append(Line(role="assistant"))
        self._lines[-1] = change(self._lines[-1])

    async def _call(self, call: turnlog.ToolCall) -> None:
        await self._close_item()
        arguments = dict(call.arguments)
        stored = Call(tool_call_id=call.tool_call_id, name=call.name, arguments=arguments)
        self._change(lambda line: msgspec.structs.replace(line, tool_calls=[*line.tool_calls, stored]))
        known = self._calls.make(call.tool_call_id, self._execution.new_id)
        if known is not None:
            await self._again(known)
            return
        self._leave(len(self._lines) - 1)
        item_id = self._calls.item_of(call.tool_call_id)
        await self._emit(
            frames.Together(
                frames=(
                    frames.ToolCalled(
                        item_id=item_id,
                        tool_call_id=call.tool_call_id,
                        name=call.name,
                        arguments=arguments,
                        idempotent=call.idempotent,
                    ),
                    frames.ToolStarted(item_id=item_id, tool_call_id=call.tool_call_id),
                )
            )
        )
        await self._execution.gate.open(item_id)

    async def _again(self, known: RecordedCall) -> None:
        """A call that the log has. Without a result its tool runs (again), behind the gate; one that may not run twice
        comes here only in the leg after a pause that it made itself, and is not over since its first start: it goes on
        as long as the claim is ours."""
        if known.output is not None:
            return
        if known.idempotent or not known.started:
            await self._outlet.emit(frames.ToolStarted(item_id=known.item_id, tool_call_id=known.tool_call_id))
            await self._execution.gate.open(known.item_id)
        else:
            await self._execution.gate.kept(0)

    async def _result(self, result: turnlog.ToolResult) -> None:
        await self._close_item()
        item_id = self._calls.item_of(result.tool_call_id)
        output = result.output if isinstance(result.output, str) else _json(result.output)
        recorded = self._calls.recorded_result(result.tool_call_id)
        finishes = result.final and self._calls.is_open(result.tool_call_id)
        if finishes:
            # The past tells what was stored, not what was cut off, nor what another attempt says it would be now. It
            # tells it at once: a frame on its way comes into the log, also where the turn is interrupted meanwhile.
            kept = cut(output, self._execution.tool_result_bytes).text if recorded is None else recorded
            self._finish_call(result.tool_call_id, kept)
        if recorded is None:
            await self._emit(
                frames.ToolResulted(
                    item_id=item_id,
                    tool_call_id=result.tool_call_id,
                    output=output,
                    is_error=result.is_error,
                    final=result.final,
                )
            )
        if finishes:
            if not self._repeating and not self._calls.any_open:
                await self._checkpoint("tool_batch")
            self._arrive()

    def _finish_call(self, tool_call_id: str, output: str) -> None:
        self._lines.append(Line(role="tool", text=output, tool_call_id=tool_call_id))
        self._response_over = True
        self._calls.close(tool_call_id)

    def _settle_recorded(self) -> None:
        """Code that knows a result from `turn.recorded` need not yield it again."""
        for tool_call_id, output in self._calls.unsaid():
            self._finish_call(tool_call_id, output)
        self._arrive()

    async def _checkpoint(self, reason: Literal["tool_batch", "pause", "interrupted", "end"]) -> None:
        self._keep_text()
        if reason != "tool_batch":
            self._settle_recorded()
        new = self._lines[self._kept :]
        self._kept = max(self._kept, len(self._lines))
        await self._outlet.emit(
            frames.Checkpoint(reason=reason, message_index=self._kept, private=transcript.encode(new))
        )

    async def _emit(self, frame: frames.RuntimeFrame) -> None:
        if not self._repeating:
            await self._outlet.emit(frame)

    def _turn(self) -> turnlog.Turn:
        execution = self._execution
        return turnlog.Turn(
            input=input_text(execution.input),
            parts=tuple(execution.input),
            history=tuple(transcript.history(execution.past)),
            session_id=execution.session_id,
            turn_id=execution.turn_id,
            attempt=execution.attempt,
            recorded=MappingProxyType(self._calls.visible),
            context_version=execution.context_version,
            attachments=execution.attachments,
        )


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError) as error:
        raise RuntimeFailed("agent_error", f"A tool's output has no JSON form ({type(error).__name__}).") from error
