"""Runs an async generator function: what it yields, in order, each gated at its yield."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Literal

import msgspec

import turnlog
from domain import frames
from domain.events.item import ItemKind
from domain.parts import Answer, input_text
from domain.runtime import Capabilities, Execution, RecordedCall, RuntimeFailed
from services.worker.executor.tool_results import cut
from services.worker.runtimes import transcript
from services.worker.runtimes.outlet import Outlet
from services.worker.runtimes.transcript import Call, Line

AgentFunction = Callable[[turnlog.Turn], AsyncGenerator[Any, Any]]


class CallableRuntime:
    """Implements `domain.runtime.Runtime`."""

    capabilities = Capabilities(can_pause=True)

    def __init__(self, function: AgentFunction) -> None:
        self._function = function

    def execute(self, execution: Execution) -> AsyncGenerator[frames.RuntimeFrame, None]:
        return Outlet().stream(lambda outlet: Play(self._function, execution, outlet).run())


class Play:
    """One run of the generator."""

    def __init__(self, function: AgentFunction, execution: Execution, outlet: Outlet) -> None:
        self._function = function
        self._execution = execution
        self._outlet = outlet
        self._text: list[str] = []
        self._open: tuple[str, ItemKind] | None = None
        self._response_over = True
        self._calls: dict[str, str] = {}
        self._settled: set[str] = set()
        self._lines: list[Line] = [Line(role="user", text=input_text(execution.input))]
        self._kept = sum(len(transcript.decode(blob)) for blob in execution.messages)
        # A leg after a pause: what the generator yields before that pause was said in an earlier leg.
        self._asked = {requirement.tool_call_id for requirement in execution.requirements}
        self._repeating = bool(self._asked)
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
                        await self._outlet.emit(frames.Paused(requirements=list(thing.requirements)))
                        return None
                else:
                    answer = None
                    await self._handle(thing)
        await self._close_item()
        self._over = True
        await self._checkpoint("end")
        return next((line.text for line in reversed(self._lines) if line.role == "assistant"), "")

    def _answers(self, pause: turnlog.Pause) -> dict[str, Answer] | None:
        ids = {requirement.tool_call_id for requirement in pause.requirements}
        known = self._execution.answers
        if not ids or not ids <= known.keys():
            return None
        if ids == self._asked:
            self._repeating = False
        return {tool_call_id: known[tool_call_id] for tool_call_id in ids}

    async def _handle(self, thing: Any) -> None:
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
                        item_id=self._item_of(thing.tool_call_id),
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
        known = self._recorded_of(call.tool_call_id)
        if known is not None:
            await self._call_again(known)
            return
        item_id = self._calls[call.tool_call_id] = self._execution.new_id()
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

    async def _call_again(self, known: RecordedCall) -> None:
        """A call that is in the log. One with a result is over, and what is yielded for it now says nothing new; one
        without may start (again), since recovery would have ended the turn where it may not."""
        self._calls[known.tool_call_id] = known.item_id
        if known.output is not None:
            self._settled.add(known.item_id)
        elif not self._repeating:
            await self._emit(frames.ToolStarted(item_id=known.item_id, tool_call_id=known.tool_call_id))
            await self._execution.gate.open(known.item_id)

    async def _result(self, result: turnlog.ToolResult) -> None:
        await self._close_item()
        item_id = self._item_of(result.tool_call_id)
        output = result.output if isinstance(result.output, str) else _json(result.output)
        if result.final:
            # The past tells what was stored, not what was cut off.
            kept = cut(output, self._execution.tool_result_bytes).text
            self._lines.append(Line(role="tool", text=kept, tool_call_id=result.tool_call_id))
            self._response_over = True
        if item_id in self._settled:
            return
        await self._emit(
            frames.ToolResulted(
                item_id=item_id,
                tool_call_id=result.tool_call_id,
                output=output,
                is_error=result.is_error,
                final=result.final,
            )
        )

    async def _checkpoint(self, reason: Literal["pause", "interrupted", "end"]) -> None:
        self._keep_text()
        new = self._lines[self._kept :]
        self._kept = len(self._lines)
        await self._outlet.emit(
            frames.Checkpoint(reason=reason, message_index=len(self._lines), private=transcript.encode(new))
        )

    async def _emit(self, frame: frames.RuntimeFrame) -> None:
        if not self._repeating:
            await self._outlet.emit(frame)

    def _item_of(self, tool_call_id: str) -> str:
        if tool_call_id not in self._calls:
            raise RuntimeFailed("agent_error", f"There was no ToolCall {tool_call_id[:100]!r} before its result.")
        return self._calls[tool_call_id]

    def _recorded_of(self, tool_call_id: str) -> RecordedCall | None:
        """A call of an earlier leg or attempt that this one comes to again."""
        taken = set(self._calls.values())
        return next(
            (
                call
                for call in self._execution.recorded.values()
                if call.tool_call_id == tool_call_id and call.item_id not in taken
            ),
            None,
        )

    def _turn(self) -> turnlog.Turn:
        execution = self._execution
        return turnlog.Turn(
            input=input_text(execution.input),
            parts=tuple(execution.input),
            history=tuple(transcript.history(execution.past)),
            session_id=execution.session_id,
            turn_id=execution.turn_id,
            attempt=execution.attempt,
            recorded={
                call.tool_call_id: turnlog.ToolResult(
                    tool_call_id=call.tool_call_id, output=call.output, is_error=call.is_error
                )
                for call in execution.recorded.values()
                if call.output is not None
            },
            context_version=execution.context_version,
        )


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError) as error:
        raise RuntimeFailed("agent_error", f"A tool's output has no JSON form ({type(error).__name__}).") from error
