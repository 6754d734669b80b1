"""The pydantic-ai runtime on the in-memory store, with models that are functions."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, Tool, ToolReturn
from pydantic_ai.exceptions import AgentRunError, ModelAPIError, ModelHTTPError, UnexpectedModelBehavior, UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from domain import commands
from domain.expand import expand
from domain.frames import Completed
from domain.ids import CommandKey, TurnId
from domain.parts import Answer
from infra.system import SystemIds
from services.worker import demo
from services.worker.executor.bounds import Bounds
from services.worker.executor.interrupt import StopWish
from services.worker.executor.leg import Leg, read_start
from services.worker.runtimes.pydantic_ai import PydanticAIRuntime, messages
from tests.support.execution import SECRET, Bench, assert_nowhere
from tests.support.waiting import eventually
from turnlog import AgentError

Step = str | list[DeltaToolCall]


class Script:
    """A model that says what it is told, response by response, and keeps what it was asked."""

    def __init__(self, *steps: Step) -> None:
        self._steps = list(steps)
        self.asked: list[list[ModelMessage]] = []

    async def stream(self, history: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        self.asked.append(list(history))
        step = self._steps.pop(0)
        if isinstance(step, str):
            for word in step.split(" "):
                yield word + " "
        else:
            for index, call in enumerate(step):
                yield {index: call}

    @property
    def model(self) -> FunctionModel:
        return FunctionModel(stream_function=self.stream, model_name="script")


def call(name: str, arguments: str = "{}", id: str | None = None) -> DeltaToolCall:
    return DeltaToolCall(name=name, json_args=arguments, tool_call_id=id or f"call_{name}")


def bench(agent: Agent[Any, Any], **bounds: Any) -> Bench:
    return Bench(PydanticAIRuntime(agent), Bounds(**bounds))


def stored(b: Bench, turn: str) -> list[ModelMessage]:
    """The turn's model messages, as a later turn reads them."""
    blobs = [e.private for e in b.store.events if e.turn_id == turn and e.type == "checkpoint.reached"]
    return [message for blob in blobs if blob for message in messages.decode(blob)]


async def until(condition: Callable[[], Any], what: str) -> None:
    async def asked() -> bool:
        return bool(condition())

    await eventually(asked, what, pause=0.001)


async def test_the_demonstration_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "WORD_SECONDS", 0.0)
    monkeypatch.setattr(demo, "REPORT_SECONDS", 0.05)
    b = bench(demo.agent)
    turn = await b.turn("calculate 12*7 and what time is it and write a report on bees")
    types = b.store.types(turn)
    assert types.count("tool.started") == types.count("tool_result.snapshot") == 3
    assert types[-1] == "turn.completed"
    assert b.store.data(turn, "turn.completed")[0].output.startswith("The result is 84.")
    assert any(b"tool.progress" in frame for frame in b.shown.live)
    frames = expand(await b.store.turn_events(b.store.session_id, TurnId(turn)))
    assert [f.wire for f in frames if f.sequence is None] == [f for f in b.shown.live if b"tool.progress" not in f]


async def test_calls_are_committed_with_their_message_before_any_tool_starts() -> None:
    """Parallel tools too, with a slow store: each body finds its own start in the log."""
    found: list[bool] = []

    def seen(name: str) -> None:
        turn = b.store.events[1].turn_id or ""
        started = {event.tool_call_id for event in b.store.data(turn, "tool.started")}
        found.append(f"call_{name}" in started)

    async def one() -> str:
        seen("one")
        return "1"

    def two() -> str:
        seen("two")
        return "2"

    script = Script([call("one"), call("two")], "done")
    b = bench(Agent(script.model, tools=[one, two]))
    b.store.delay = 0.1
    turn = await b.turn("go")
    assert found == [True, True]
    records = [c for c in b.store.commands if isinstance(c, commands.RecordEvents)]
    together = [[d.data.type for d in c.events] for c in records if any(d.private for d in c.events)]
    assert together[0][-3:] == ["item.completed", "item.completed", "checkpoint.reached"]
    assert b.store.types(turn).count("tool_result.snapshot") == 2


async def test_the_next_turn_gets_the_exact_messages() -> None:
    """Never rebuilt from display text: what turn 2's model is asked begins with what turn 1's was."""

    def look(q: str) -> ToolReturn:
        return ToolReturn(return_value={"q": [q]}, content="see also", metadata={"m": 1})

    script = Script([call("look", '{"q": "x"}')], "found it", "again")
    agent = Agent(script.model, tools=[look], instructions="INSTRUCTIONS", system_prompt="SYSTEM")
    b = bench(agent)
    first = await b.turn("u1")
    await b.turn("u2")
    asked = script.asked[2]
    assert asked[:3] == script.asked[1]
    assert asked[:4] == stored(b, first)
    assert isinstance(asked[3], ModelResponse)
    assert [part.content for message in asked for part in message.parts if isinstance(part, UserPromptPart)] == [
        "u1",
        "see also",
        "u2",
    ]
    assert [p.content for m in asked for p in m.parts if isinstance(p, SystemPromptPart)] == ["SYSTEM"]


async def test_nothing_private_is_public() -> None:
    """Invariant 13: system prompts stay in the private parts."""
    script = Script([call("look")], "done")
    marker = "MARKER-7f3a"
    agent = Agent(script.model, tools=[Tool(lambda: "x", name="look")], instructions=marker, system_prompt=marker)
    b = bench(agent)
    await b.turn("go")
    assert any(marker.encode() in (event.private or b"") for event in b.store.events)
    assert not any(marker.encode() in event.payload for event in b.store.events)
    assert not any(marker.encode() in frame for frame in b.shown.live)


async def test_a_result_is_cut_for_the_model_and_the_log_alike() -> None:
    script = Script([call("big")], "done")
    b = bench(Agent(script.model, tools=[Tool(lambda: "漢" * 1000, name="big")]), result_bytes=100)
    turn = await b.turn("go")
    (result,) = b.store.data(turn, "tool_result.snapshot")
    assert (result.output, result.truncated, result.original_bytes) == ("漢" * 33, True, 3000)
    returned = script.asked[1][-1].parts[0]
    assert isinstance(returned, ToolReturnPart)
    assert returned.content == "漢" * 33


async def test_every_call_gets_a_result_also_those_that_never_ran() -> None:
    def retry() -> str:
        raise ModelRetry("try again")

    def add(a: int) -> int:
        return a

    script = Script([call("nosuch"), call("add", '{"a": "x"}'), call("retry"), call("add", '{"a": 1}', "ok")], "done")
    b = bench(Agent(script.model, tools=[retry, add]))
    turn = await b.turn("go")
    results = {r.tool_call_id: r.is_error for r in b.store.data(turn, "tool_result.snapshot")}
    assert results == {"call_nosuch": True, "call_add": True, "call_retry": True, "ok": False}
    started = {event.tool_call_id for event in b.store.data(turn, "tool.started")}
    assert started == {"call_retry", "ok"}


async def test_call_ids_that_repeat_never_mix() -> None:
    numbers = iter("123")
    script = Script([call("n", id="call_0")], [call("n", id="call_0")], "done")
    b = bench(Agent(script.model, tools=[Tool(lambda: next(numbers), name="n")]))
    turn = await b.turn("go")
    results = b.store.data(turn, "tool_result.snapshot")
    calls = [item for item in b.store.data(turn, "item.completed") if item.kind == "tool_call"]
    assert [r.output for r in results] == ["1", "2"]
    assert [r.item_id for r in results] == [item.item_id for item in calls]
    assert len({r.item_id for r in results}) == 2


async def test_approval_pauses_and_the_answer_continues() -> None:
    ran: list[str] = []

    def danger(x: str) -> str:
        ran.append(x)
        return f"did {x}"

    script = Script([call("danger", '{"x": "a"}', "d1"), call("danger", '{"x": "b"}', "d2")], "done")
    b = bench(Agent(script.model, tools=[Tool(danger, requires_approval=True)]))
    turn = await b.turn("go")
    assert b.store.types(turn)[-1] == "turn.paused"
    assert "tool.started" not in b.store.types(turn)
    assert [r.kind for r in b.store.data(turn, "turn.paused")[0].requirements] == ["approval", "approval"]
    assert [i.tool_call.needs for i in b.store.data(turn, "item.completed")] == ["approval", "approval"]
    await b.store.execute(
        commands.ContinueTurn(
            session_id=b.store.session_id,
            key=CommandKey("a"),
            turn_id=TurnId(turn),
            answers={"d1": Answer(approved=True), "d2": Answer(approved=False, note="no")},
        )
    )
    await b.of(await b.store.claim()).run()
    assert ran == ["a"]
    results = {r.tool_call_id: (r.output, r.is_error) for r in b.store.data(turn, "tool_result.snapshot")}
    assert results["d1"] == ("did a", False)
    assert results["d2"][1]
    assert b.store.types(turn)[-1] == "turn.completed"
    assert len(script.asked) == 2


async def test_a_recorded_result_is_given_back_instead_of_running() -> None:
    """The seam of recovery: a leg that starts behind a committed batch asks no model for it and runs no tool twice."""
    ran: list[str] = []

    def quick(n: str) -> dict[str, str]:
        ran.append(n)
        return {"n": n}

    async def slow(n: str) -> str:
        ran.append(n)
        if ran.count(n) == 1:
            await asyncio.Event().wait()
        return n

    script = Script([call("quick", '{"n": "a"}', "c1"), call("slow", '{"n": "s"}', "c2")], "done")
    b = bench(Agent(script.model, tools=[quick, Tool(slow, metadata={"idempotent": True})]))
    executor = await b.executor("go")
    running = asyncio.create_task(executor.run())
    await until(lambda: b.store.data(executor.claim.turn_id, "tool_result.snapshot"), "the first result is recorded")
    executor.release()
    await running

    # A handed-back turn cannot be claimed again before recovery judges by the log; what it would start from is there.
    head = b.store.state.head
    assert head is not None
    again = msgspec.structs.replace(
        executor.claim, reason="released", attempt=2, started_sequence=head.last_sequence + 1
    )
    past, told = await read_start(b.store, again, b.lease)
    ids = SystemIds()
    leg = Leg(again, past, told, gate=Open(), interrupt=StopWish(), new_id=ids.uuid7, tool_result_bytes=1000)
    frames = [frame async for frame in b.runtime.execute(leg)]
    assert sorted(ran) == ["a", "s", "s"]
    assert len(script.asked) == 2
    assert isinstance(frames[-1], Completed)
    returned = {p.tool_call_id: p.content for p in script.asked[1][-1].parts if isinstance(p, ToolReturnPart)}
    assert returned == {"c1": {"n": "a"}, "c2": "s"}


class Open:
    """A gate that nothing closes."""

    async def open(self, item_id: str) -> None: ...

    async def kept(self, checkpoints: int) -> None: ...


async def test_p07_an_interrupt_in_a_tool_leaves_a_history_that_models_accept() -> None:
    hold = asyncio.Event()

    async def wait() -> str:
        await hold.wait()
        return "x"

    script = Script([call("fast"), call("wait")], "after")
    b = bench(Agent(script.model, tools=[wait, Tool(lambda: "F", name="fast")]))
    executor = await b.executor("go")
    running = asyncio.create_task(executor.run())
    turn = executor.claim.turn_id
    await until(lambda: b.store.data(turn, "tool_result.snapshot"), "the fast tool has its result")
    executor.interrupt()
    await running
    assert b.store.types(turn)[-2:] == ["checkpoint.reached", "turn.interrupted"]
    await b.turn("and now?")
    returns = {p.tool_call_id: p.outcome for m in script.asked[1] for p in m.parts if isinstance(p, ToolReturnPart)}
    assert returns == {"call_fast": "success", "call_wait": "interrupted"}


async def test_errors_of_models_do_not_quote_the_provider() -> None:
    async def stream(history: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "half"
        raise ModelHTTPError(500, "m-1", body={"prompt": "SECRET"})

    b = bench(Agent(FunctionModel(stream_function=stream)))
    turn = await b.turn("go")
    (failed,) = b.store.data(turn, "turn.failed")
    assert failed.error.code == "model_error"
    assert failed.error.retryable
    assert "500" in failed.error.message
    assert "SECRET" not in failed.error.message
    assert b.store.data(turn, "item.completed")[0].partial
    assert isinstance(stored(b, turn)[0], ModelRequest)


async def test_a_tool_that_raises_fails_the_turn_and_has_its_error_recorded() -> None:
    def broken() -> str:
        raise ValueError("no")

    script = Script([call("broken")])
    b = bench(Agent(script.model, tools=[broken]))
    turn = await b.turn("go")
    assert b.store.data(turn, "tool_result.snapshot")[0].output == "ValueError"
    assert b.store.data(turn, "turn.failed")[0].error.message == "ValueError"


async def test_a_tools_agent_error_is_told_to_people() -> None:
    def broken() -> str:
        raise AgentError("The printer is out of paper.", retryable=True)

    script = Script([call("broken")])
    b = bench(Agent(script.model, tools=[broken]))
    turn = await b.turn("go")
    assert b.store.data(turn, "tool_result.snapshot")[0].output == "The printer is out of paper."
    error = b.store.data(turn, "turn.failed")[0].error
    assert (error.code, error.message, error.retryable) == ("agent_error", "The printer is out of paper.", True)


@pytest.mark.parametrize(
    "raised",
    [
        OSError(f"postgresql://me:{SECRET}@db/x"),
        ExceptionGroup(SECRET, [ValueError(SECRET)]),
        UserError(SECRET),
        UnexpectedModelBehavior(SECRET, body=SECRET),
        ModelAPIError("m-1", SECRET),
        type("Own", (AgentRunError,), {})(SECRET),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("where", ["tool", "model", "instructions"])
async def test_the_text_of_an_exception_is_stored_and_shown_nowhere(where: str, raised: Exception) -> None:
    def broken() -> str:
        raise raised

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "half"
        raise raised

    model = Script([call("broken")]).model if where == "tool" else FunctionModel(stream_function=stream)
    agent = Agent(model, tools=[broken])
    if where == "instructions":

        @agent.instructions
        def instructed() -> str:
            raise raised

    b = bench(agent)
    turn = await b.turn("go")
    (failed,) = b.store.data(turn, "turn.failed")
    assert type(raised).__name__ in failed.error.message
    assert_nowhere(b, SECRET)


async def test_a_failed_first_turn_does_not_cost_the_system_prompt() -> None:
    script = Script("fine")
    agent = Agent(script.model, system_prompt="SYSTEM")
    b = bench(agent)
    executor = await b.executor("one")
    executor.interrupt()
    await executor.run()
    await b.turn("two")
    parts = [part for message in script.asked[0] for part in message.parts]
    assert any(isinstance(part, SystemPromptPart) for part in parts)
    assert [part.content for part in parts if isinstance(part, UserPromptPart)] == ["one", "two"]


class City(BaseModel):
    name: str


async def test_a_structured_answer_is_a_message_too() -> None:
    script = Script([call("final_result", '{"name": "Paris"}')])
    b = bench(Agent(script.model, output_type=City))
    turn = await b.turn("go")
    assert b.store.data(turn, "turn.completed")[0].output == '{"name":"Paris"}'
    assert [(i.kind, i.text) for i in b.store.data(turn, "item.completed")] == [("text", '{"name":"Paris"}')]


async def test_a_model_that_cannot_stream_gives_whole_items() -> None:
    def answer(history: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if any(isinstance(part, ToolReturnPart) for part in history[-1].parts):
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[TextPart("let me"), ToolCallPart("look", {}, "c1")])

    b = bench(Agent(FunctionModel(answer), tools=[Tool(lambda: "x", name="look")]))
    turn = await b.turn("go")
    assert [i.text for i in b.store.data(turn, "item.completed") if i.kind == "text"] == ["let me", "done"]
    reasons = [event.reason for event in b.store.data(turn, "checkpoint.reached")]
    assert reasons == ["tool_batch", "tool_batch", "end"]
    assert len(stored(b, turn)) == 4


async def test_lone_surrogates_of_a_model_do_not_cost_the_turn() -> None:
    script = Script("a\ud800b", "again")
    b = bench(Agent(script.model))
    turn = await b.turn("go")
    assert b.store.data(turn, "item.completed")[0].text == "a\ufffdb "
    await b.turn("more")
    assert len(script.asked[1]) == 3
