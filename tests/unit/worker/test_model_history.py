"""The exact list of messages that the model is given, whatever happened before: what it knows is a walk of parents."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent, Tool
from pydantic_ai.messages import ModelMessage, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from domain import commands, replies
from domain.ids import CommandKey, TurnId
from domain.parts import TextPart as InputText
from infra.system import SystemIds
from services.worker.executor.executor import Executor
from services.worker.runtimes.pydantic_ai.runtime import PydanticAIRuntime
from tests.support.collector import WORKER
from tests.support.execution import Bench
from tests.support.waiting import eventually

Told = list[tuple[str, ...]]


def plain(messages: list[ModelMessage]) -> Told:
    """Who said what."""
    found: Told = []
    for message in messages:
        for part in message.parts:
            match part:
                case UserPromptPart():
                    content = part.content if isinstance(part.content, str) else "|".join(map(str, part.content))
                    found.append(("user", content))
                case TextPart():
                    found.append(("assistant", part.content))
                case ToolCallPart():
                    found.append(("call", part.tool_call_id))
                case ToolReturnPart():
                    found.append(("result", part.tool_call_id, part.outcome))
    return found


class Chat:
    """One session. A prompt `uN` is answered by `aN`; with ` tools` in it two tools come first, of which the second
    waits for `go`."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.ran: list[str] = []
        self.go = asyncio.Event()
        agent = Agent(
            FunctionModel(stream_function=self._answer, model_name="chat"),
            tools=[Tool(self._quick, name="quick"), Tool(self._slow, name="slow", metadata={"idempotent": True})],
        )
        self.bench = Bench(PydanticAIRuntime(agent))
        self.store = self.bench.store
        self._ids = SystemIds()

    async def _answer(self, history: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        told = plain(history)
        self.told.append(told)
        prompt = next(said[1] for said in reversed(told) if said[0] == "user")
        if "tools" in prompt and told[-1][0] == "user":
            yield "looking"
            for index, name in enumerate(("quick", "slow")):
                yield {index: DeltaToolCall(name=name, json_args="{}", tool_call_id=f"call_{index}")}
            return
        yield "a" + prompt.split("|")[0].split()[0][1:]

    async def _quick(self) -> str:
        self.ran.append("quick")
        return "q"

    async def _slow(self) -> str:
        self.ran.append("slow")
        await self.go.wait()
        return "s"

    async def submit(self, *texts: str) -> list[TurnId]:
        if not self.store.events:
            await self.store.create()
        return [await self.store.submit(text) for text in texts]

    async def claim(self) -> Executor:
        """Whatever may start: also what a dead worker left."""
        command = commands.ClaimTurn(
            session_id=self.store.session_id, key=self._key(), worker_id=WORKER, take_over=True
        )
        reply = await self.store.run(command, replies.ClaimReply)
        assert reply.claim is not None
        return self.bench.of(reply.claim)

    async def run(self, times: int = 1) -> None:
        for _ in range(times):
            await (await self.claim()).run()

    async def fork(self, source: TurnId, place: str, text: str | None, sequence: int | None = None) -> TurnId:
        given = None if text is None else [InputText(text)]
        return await self._branch(commands.ForkTurn, source, place=place, sequence=sequence, input=given)

    async def regenerate(self, source: TurnId) -> TurnId:
        return await self._branch(commands.RegenerateTurn, source)

    async def _branch(self, kind: Any, source: TurnId, **fields: Any) -> TurnId:
        made = TurnId(self._ids.uuid7())
        shared = {"session_id": self.store.session_id, "key": self._key(), "turn_id": made, "source_turn_id": source}
        await self.store.execute(kind(**shared, **fields))
        return made

    async def die_in_the_tools(self) -> None:
        """Start the next turn and lose its worker while its second tool runs, after the first one's result."""
        executor = await self.claim()
        running = asyncio.create_task(executor.run())
        turn = executor.claim.turn_id

        async def half_done() -> bool:
            return self.ran[-1:] == ["slow"] and bool(self.store.data(turn, "tool_result.snapshot"))

        await eventually(half_done, "the first tool has its result")
        executor.lost()
        await running
        self.store.state.claim = None

    def _key(self) -> CommandKey:
        return CommandKey(self._ids.uuid7())


def turn(number: int | str, text: str | None = None) -> Told:
    """A turn without tools, as the next model sees it."""
    return [("user", text or f"u{number}"), ("assistant", f"a{number}")]


TOOLS: Told = [
    ("assistant", "looking"),
    ("call", "call_0"),
    ("call", "call_1"),
    ("result", "call_0", "success"),
    ("result", "call_1", "success"),
]


async def test_three_queued_inputs_with_a_recovery_in_between() -> None:
    chat = Chat()
    await chat.submit("u1", "u2 tools", "u3")
    await chat.run()
    await chat.die_in_the_tools()
    chat.go.set()
    await chat.run(2)
    assert chat.told == [
        [("user", "u1")],
        [*turn(1), ("user", "u2 tools")],
        [*turn(1), ("user", "u2 tools"), *TOOLS],
        [*turn(1), ("user", "u2 tools"), *TOOLS, ("assistant", "a2"), ("user", "u3")],
    ]
    assert chat.ran == ["quick", "slow", "slow"], "and the model was asked for the batch once"


async def test_the_first_turn_is_regenerated_while_a_second_exists() -> None:
    chat = Chat()
    first, _ = await chat.submit("u1", "u2")
    await chat.run(2)
    await chat.regenerate(first)
    await chat.submit("u4")
    await chat.run(2)
    assert chat.told[2:] == [[("user", "u1")], [*turn(1), ("user", "u4")]], "the second turn is on the other branch"


async def test_a_regenerated_second_turn_keeps_the_first() -> None:
    chat = Chat()
    _, second = await chat.submit("u1", "u2")
    await chat.run(2)
    await chat.regenerate(second)
    await chat.run()
    assert chat.told[2] == [*turn(1), ("user", "u2")]


async def test_a_fork_with_queued_turns_before_it_and_a_plain_turn_after() -> None:
    chat = Chat()
    first, _ = await chat.submit("u1", "u2")
    await chat.run()
    await chat.fork(first, "end", "u3")
    await chat.submit("u4")
    await chat.run(3)
    assert chat.told[1:] == [
        [*turn(1), ("user", "u2")],
        [*turn(1), ("user", "u3")],
        [*turn(1), *turn(3), ("user", "u4")],
    ]


async def test_a_fork_after_a_batch_of_tools_has_its_results_and_no_more() -> None:
    chat = Chat()
    chat.go.set()
    _, second = await chat.submit("u1", "u2 tools")
    await chat.run(2)
    batches = [e.sequence for e in chat.store.events if e.type == "checkpoint.reached" and e.turn_id == second]
    after_batch = batches[1]
    await chat.fork(second, str(after_batch), "u3", after_batch)
    await chat.fork(second, str(after_batch), None, after_batch)
    await chat.fork(second, "last_user", "u5")
    await chat.run(3)
    known = [*turn(1), ("user", "u2 tools"), *TOOLS]
    assert chat.told[3:] == [[*known, ("user", "u3")], known, [*turn(1), ("user", "u5")]]


async def test_an_interrupted_turn_in_between_stays_with_its_calls_closed() -> None:
    chat = Chat()
    await chat.submit("u1", "u2 tools", "u3")
    await chat.run()
    executor = await chat.claim()
    running = asyncio.create_task(executor.run())

    async def half_done() -> bool:
        return bool(chat.store.data(executor.claim.turn_id, "tool_result.snapshot"))

    await eventually(half_done, "the first tool has its result")
    executor.interrupt()
    await running
    if chat.store.state.head is not None and chat.store.state.head.queue_state == "paused":
        resume = commands.ResumeQueue(session_id=chat.store.session_id, key=CommandKey("resume"))
        await chat.store.execute(resume)
    await chat.run()
    cut = [*TOOLS[:-1], ("result", "call_1", "interrupted")]
    assert chat.told[-1] == [*turn(1), ("user", "u2 tools"), *cut, ("user", "u3")]
