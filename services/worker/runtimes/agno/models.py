"""Stands around a model: its answers become items and checkpoints, recorded ones are given back, and every tool that it
calls passes the gate."""

import copy
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse
from agno.tools.function import Function, FunctionCall

from domain import frames
from services.worker.runtimes.agno import events
from services.worker.runtimes.agno.gate import gated
from services.worker.runtimes.agno.journal import Answered
from services.worker.runtimes.agno.runs import Run, current

_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_DETAILS = ("reasoning_tokens", "audio_input_tokens", "audio_output_tokens")


def observed(model: Model) -> Model:
    """A copy of the model that reports to the run in whose code it is called. Its client is shared."""
    made = copy.copy(model)
    stream, whole, call = made.aprocess_response_stream, made._aprocess_model_response, made.arun_function_call
    loop = made.aresponse_stream

    def aresponse_stream(*args: Any, **rest: Any) -> Any:
        run = current.get()
        if run is not None:
            run.functions = {tool.name: tool for tool in rest.get("tools") or [] if isinstance(tool, Function)}
        return loop(*args, **rest)

    async def aprocess_response_stream(messages: list[Message], assistant_message: Message, **rest: Any) -> Any:
        run = current.get()
        if run is None:
            async for delta in stream(messages=messages, assistant_message=assistant_message, **rest):
                yield delta
            return
        request = Request(made, run, messages, assistant_message)
        if await request.begin():
            yield request.given_back(rest.get("stream_data"))
            return
        deltas = stream(messages=messages, assistant_message=assistant_message, **rest)
        async for delta in request.live(deltas):
            yield delta
        extra = getattr(rest.get("stream_data"), "extra", None)
        await request.end(extra)

    async def _aprocess_model_response(
        messages: list[Message], assistant_message: Message, model_response: ModelResponse, **rest: Any
    ) -> None:
        run = current.get()
        arguments: dict[str, Any] = {
            "messages": messages,
            "assistant_message": assistant_message,
            "model_response": model_response,
        }
        if run is None:
            await whole(**arguments, **rest)
            return
        request = Request(made, run, messages, assistant_message)
        if await request.begin():
            request.give_back_whole(model_response)
            return
        try:
            await whole(**arguments, **rest)
        except Exception as error:
            run.error = error
            raise
        await request.delta(model_response)
        await request.end(model_response.extra)

    async def arun_function_call(function_call: FunctionCall) -> Any:
        run = current.get()
        if run is None:
            return await call(function_call)
        return await gated(run, function_call, call)

    # On this copy only: its methods find themselves again in what they call.
    vars(made).update(
        aresponse_stream=aresponse_stream,
        aprocess_response_stream=aprocess_response_stream,
        _aprocess_model_response=_aprocess_model_response,
        arun_function_call=arun_function_call,
    )
    return made


class Request:
    """One request of a run to its model."""

    def __init__(self, model: Model, run: Run, messages: list[Message], answer: Message) -> None:
        self._model = model
        self._run = run
        self._messages = messages
        self._answer = answer
        self._number = 0
        self._known: Answered | None = None
        self._open: dict[str, str] = {}

    async def begin(self) -> bool:
        """True where the log has the answer."""
        run = self._run
        run.messages = self._messages
        await run.after_batch(self._messages)
        self._number, self._known = run.next_request()
        run.error = None
        run.partial = ""
        if self._known is not None:
            return True
        await run.conductor.emit(
            frames.ResponseStarted(scope=run.scope),
            frames.StepReported(
                name=events.prefixed(run.kind, "ModelRequestStarted"),
                payload={"model": self._model.id, "model_provider": self._model.provider},
                scope=run.scope,
            ),
        )
        return False

    async def live(self, deltas: AsyncIterator[ModelResponse]) -> AsyncIterator[ModelResponse]:
        """The deltas, each shown before it is passed on."""
        try:
            async for delta in deltas:
                await self.delta(delta)
                yield delta
        except Exception as error:
            self._run.error = error
            raise

    async def delta(self, delta: ModelResponse) -> None:
        """Text and thoughts of a piece."""
        if isinstance(delta.reasoning_content, str) and delta.reasoning_content:
            await self._more("reasoning", delta.reasoning_content)
        if isinstance(delta.content, str) and delta.content:
            await self._more("text", delta.content)
            self._run.partial += delta.content

    async def end(self, extra: dict[str, Any] | None) -> None:
        """The answer is whole: its texts, its calls and the checkpoint that has it go into one append, before any tool
        starts."""
        run, answer = self._run, self._answer
        conductor = run.conductor
        made: list[frames.RuntimeFrame] = [
            frames.ItemEnded(item_id=item_id, scope=run.scope) for item_id in self._open.values()
        ]
        made += [self._usage(), self._completed()]
        items: dict[str, str] = {}
        for call in answer.tool_calls or []:
            call_id = call.get("id") or ""
            function = call.get("function") or {}
            items[call_id] = run.new_item(call_id)
            made.append(
                frames.ToolCalled(
                    item_id=items[call_id],
                    tool_call_id=call_id,
                    name=str(function.get("name") or ""),
                    arguments=_arguments(function.get("arguments")),
                    idempotent=run.may_repeat(str(function.get("name") or "")),
                    needs=run.needs(str(function.get("name") or "")),
                    scope=run.scope,
                )
            )
        run.partial = ""
        if isinstance(answer.content, str) and answer.content:
            conductor.said = answer.content
        if items or not run.own:
            answered = Answered(
                run=run.key,
                number=self._number,
                message=answer.to_dict(),
                extra=extra if extra and events.is_json(extra) else None,
                items=items,
            )
            entry = run.entry([*self._messages, answer], answered=answered)
            made.append(conductor.checkpoint(entry, "tool_batch", run.scope))
        await conductor.emit(*made)

    def given_back(self, stream_data: Any) -> ModelResponse:
        """The recorded answer, as if it had come in one piece."""
        known = self._restore()
        if stream_data is not None and known.extra is not None:
            stream_data.extra = known.extra
        answer = self._answer
        return ModelResponse(
            content=answer.content, reasoning_content=answer.reasoning_content, provider_data=answer.provider_data
        )

    def give_back_whole(self, response: ModelResponse) -> None:
        """The recorded answer, for who does not stream."""
        known = self._restore()
        response.content = self._answer.content
        response.reasoning_content = self._answer.reasoning_content
        response.tool_calls = self._answer.tool_calls or []
        response.extra = known.extra

    def _restore(self) -> Answered:
        known = self._known
        assert known is not None
        was = Message.from_dict(dict(known.message))
        for name in ("id", "role", "content", "reasoning_content", "redacted_reasoning_content", "tool_calls"):
            setattr(self._answer, name, getattr(was, name))
        self._answer.provider_data = was.provider_data
        if was.metrics is not None:
            self._answer.metrics = was.metrics
        self._run.items.update(known.items)
        if isinstance(was.content, str) and was.content:
            self._run.conductor.said = was.content
        return known

    async def _more(self, kind: str, text: str) -> None:
        run = self._run
        if kind not in self._open:
            self._open[kind] = run.conductor.execution.new_id()
            await run.conductor.emit(
                frames.ItemStarted(
                    item_id=self._open[kind], kind="text" if kind == "text" else "reasoning", scope=run.scope
                )
            )
        await run.conductor.emit(frames.ItemDelta(item_id=self._open[kind], text=text, scope=run.scope))

    def _usage(self) -> frames.UsageReported:
        metrics = self._answer.metrics
        counts = {name: int(getattr(metrics, name, 0) or 0) for name in _COUNTS}
        details = {name: int(getattr(metrics, name, 0) or 0) for name in _DETAILS}
        return frames.UsageReported(
            model=self._model.id,
            details={name: count for name, count in details.items() if count},
            scope=self._run.scope,
            **counts,
        )

    def _completed(self) -> frames.StepReported:
        metrics = self._answer.metrics
        names = (*_COUNTS, "total_tokens", "reasoning_tokens", "time_to_first_token")
        return frames.StepReported(
            name=events.prefixed(self._run.kind, "ModelRequestCompleted"),
            payload={
                "model": self._model.id,
                "model_provider": self._model.provider,
                **{name: getattr(metrics, name, None) for name in names},
            },
            scope=self._run.scope,
        )


def _arguments(text: Any) -> dict[str, Any]:
    if isinstance(text, dict):
        return text
    try:
        made = msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        return {"text": str(text)}
    return made if isinstance(made, dict) else {"value": made}
