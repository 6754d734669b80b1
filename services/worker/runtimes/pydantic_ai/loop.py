"""One run of a pydantic-ai agent, node by node."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic_ai import Agent, CustomEvent, DeferredToolRequests
from pydantic_ai.capabilities import ReinjectSystemPrompt
from pydantic_ai.exceptions import AgentRunError, RunCancelled
from pydantic_ai.messages import FunctionToolResultEvent, ModelMessage, ModelResponse, ToolReturnPart
from pydantic_ai.models import Model
from pydantic_core import to_json
from pydantic_graph import End

from domain import frames
from domain.runtime import Execution
from services.worker.runtimes.outlet import Outlet
from services.worker.runtimes.pydantic_ai import answers, errors, messages
from services.worker.runtimes.pydantic_ai.files import Files
from services.worker.runtimes.pydantic_ai.gate import ToolGate, called
from services.worker.runtimes.pydantic_ai.stream import ResponseStream


class AgentLoop:
    """Runs in a task of its own. Checkpoints keep the run's own messages, only the new ones: with each batch of tool
    calls before any of them starts, after a batch with its results, at a pause, at the end, and when the run is cut
    off."""

    def __init__(self, agent: Agent[Any, Any], model: Model | None, execution: Execution, outlet: Outlet) -> None:
        self._agent = agent
        self._model = model
        self._execution = execution
        self._outlet = outlet
        self._gate = ToolGate(execution, outlet)
        self._files = Files(execution.attachments)
        self._run: Any = None
        self._kept = 0
        self._earlier = 0
        self._batch_over = False
        self._unheard = False

    async def run(self) -> None:
        """To the end, a pause, an error or an interrupt."""
        own = [message for blob in self._execution.messages for message in messages.decode(blob)]
        # What this turn is about first: the past gets what is left.
        asked = None if own else await self._files.prompt(self._execution.input)
        own = await self._files.filled(own)
        past = await self._files.filled(messages.past_messages(self._execution.past))
        self._earlier = len(own)
        open_calls = messages.dangling_calls(own)
        self._resume(open_calls)
        output_type: Any = [self._agent.output_type, DeferredToolRequests]
        try:
            async with self._agent.iter(
                asked,
                message_history=[*past, *own],
                deferred_tool_results=answers.results(
                    open_calls, answers.of_batch(self._execution.pauses, self._gate.items)
                ),
                model=self._model,
                output_type=output_type,
                capabilities=[self._gate, ReinjectSystemPrompt()],
                conversation_id=self._execution.session_id,
                metadata=self._about(),
            ) as run:
                self._run = run
                self._execution.interrupt.on_request(run.cancel)
                await self._nodes(run)
            await self._ended(run)
        except RunCancelled:
            await self._cut_off()
        except AgentRunError as error:
            await self._cut_off()
            raise errors.told(error) from error
        except Exception:
            await self._cut_off()
            raise

    def _about(self) -> dict[str, Any]:
        """What tools and instructions find in `ctx.metadata`."""
        execution = self._execution
        return {
            "session_id": execution.session_id,
            "turn_id": execution.turn_id,
            "attempt": execution.attempt,
            "context_version": execution.context_version,
        }

    def _resume(self, open_calls: Sequence[Any]) -> None:
        """Calls of the batch that an earlier attempt or leg left open: their items exist, some have results."""
        wanted = {call.tool_call_id for call in open_calls}
        for known in self._execution.recorded.values():
            if known.tool_call_id in wanted:
                self._gate.items[known.tool_call_id] = known.item_id
                self._gate.recorded.pop(known.tool_call_id, None)
                if known.output is not None:
                    self._gate.recorded[known.tool_call_id] = known

    async def _nodes(self, run: Any) -> None:
        node = run.next_node
        while not isinstance(node, End):
            if Agent.is_model_request_node(node):
                node = await self._request(run, node)
            elif Agent.is_call_tools_node(node):
                node = await self._tools(run, node)
            else:
                node = await run.next(node)

    async def _request(self, run: Any, node: Any) -> Any:
        self._unheard = True
        await self._outlet.emit(frames.ResponseStarted())
        stream = ResponseStream(self._outlet, self._execution.new_id)
        if _streams(run.ctx.deps.model):
            async with node.stream(run.ctx) as events:
                await self._after_batch(run.new_messages())
                async for event in events:
                    await stream.event(event)
            following = await run.next(node)
        else:
            following = await run.next(node)
            new = run.new_messages()
            await self._after_batch(new[:-1])
            if isinstance(new[-1], ModelResponse):
                await stream.whole(new[-1])
        if Agent.is_call_tools_node(following):
            await self._responded(run, following.model_response)
        return following

    async def _responded(self, run: Any, response: ModelResponse) -> None:
        """The response is whole. Its calls and the message that has them go into one append, before any tool starts."""
        usage = response.usage
        await self._outlet.emit(
            frames.UsageReported(
                model=response.model_name or "unknown",
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cache_read_tokens=usage.cache_read_tokens,
                cache_write_tokens=usage.cache_write_tokens,
                details={name: count for name, count in usage.details.items() if count},
            )
        )
        self._gate.next_batch()
        calls: list[frames.RuntimeFrame] = []
        manager = run.ctx.deps.tool_manager
        for call in response.tool_calls:
            tool_def = manager.get_tool_def(call.tool_name)
            if tool_def is not None and tool_def.kind == "output":
                continue  # the final answer in the guise of a call
            item_id = self._gate.items[call.tool_call_id] = self._execution.new_id()
            calls.append(called(item_id, call, tool_def))
        self._unheard = False
        if calls:
            await self._outlet.emit(
                frames.Together(frames=(*calls, self._checkpoint("tool_batch", run.new_messages())))
            )

    async def _tools(self, run: Any, node: Any) -> Any:
        async with node.stream(run.ctx) as events:
            async for event in events:
                match event:
                    case CustomEvent():
                        await self._progress(event)
                    case FunctionToolResultEvent(part=ToolReturnPart() as part):
                        await self._gate.resulted(part)
        following = await run.next(node)
        self._batch_over = bool(self._gate.items)
        return following

    async def _after_batch(self, new: Sequence[ModelMessage]) -> None:
        """The request with the batch's results has its final form only when it is sent."""
        if self._batch_over and len(new) > self._kept:
            self._batch_over = False
            await self._outlet.emit(self._checkpoint("tool_batch", new))

    async def _ended(self, run: Any) -> None:
        output = run.result.output
        if isinstance(output, DeferredToolRequests):
            await self._outlet.emit(self._checkpoint("pause", run.new_messages()))
            await self._outlet.emit(frames.Paused(requirements=answers.requirements(output, self._gate.items)))
            return
        if not isinstance(output, str):
            output = to_json(output, fallback=str).decode()
            await self._say(output)
        await self._outlet.emit(self._checkpoint("end", run.new_messages()))
        await self._outlet.emit(frames.Completed(output=output))

    async def _say(self, text: str) -> None:
        """A structured answer is no text of the model's; people read its JSON."""
        item_id = self._execution.new_id()
        await self._outlet.emit(frames.ItemStarted(item_id=item_id, kind="text"))
        await self._outlet.emit(frames.ItemDelta(item_id=item_id, text=text))
        await self._outlet.emit(frames.ItemEnded(item_id=item_id))

    async def _cut_off(self) -> None:
        """Keep what there is: the next turn's model sees it, with open calls closed."""
        if self._run is None:
            return
        new = self._run.new_messages()
        # Calls of a response that was cut off have not been made, and their arguments may be half of what they are.
        if self._unheard and len(new) > self._kept:
            new = messages.without_calls(new)
        new = messages.with_results(new, self._gate.results)
        if len(new) > self._kept:
            await self._outlet.emit(self._checkpoint("interrupted", new))

    def _checkpoint(
        self, reason: Literal["tool_batch", "pause", "interrupted", "end"], new: Sequence[ModelMessage]
    ) -> frames.Checkpoint:
        private = messages.encode(self._files.bare(new[self._kept :]))
        self._kept = len(new)
        return frames.Checkpoint(reason=reason, message_index=self._earlier + len(new), private=private)

    async def _progress(self, event: CustomEvent) -> None:
        item_id = self._gate.items.get(event.tool_call_id or "")
        if item_id is None:
            return
        text, fraction = getattr(event, "text", None), getattr(event, "fraction", None)
        await self._outlet.emit(
            frames.ToolProgressed(
                item_id=item_id,
                tool_call_id=event.tool_call_id or "",
                text=text if isinstance(text, str) else event.name if fraction is None else None,
                fraction=float(fraction) if isinstance(fraction, int | float) else None,
            )
        )


def _streams(model: Any) -> bool:
    """Models that cannot stream keep the base class's method, which refuses; a function model may lack the function."""
    if getattr(model, "stream_function", ...) is None:
        return False
    return type(model).request_stream is not Model.request_stream
