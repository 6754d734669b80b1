"""Async generators that are started again: what the log has is neither said nor done twice."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from domain import commands, replies
from domain.ids import CommandKey, TurnId
from domain.parts import Answer
from infra.system import SystemIds
from services.worker.executor.executor import Executor
from services.worker.runtimes.callable import CallableRuntime
from tests.support.collector import WORKER
from tests.support.execution import Bench
from tests.support.waiting import eventually
from turnlog import Fate, Pause, Requirement, ToolCall, ToolResult, Turn, asked

Agent = Callable[[Turn], AsyncGenerator[Any, Any]]


class Lives:
    """One turn of an agent, in several attempts."""

    def __init__(self, agent: Agent) -> None:
        self.bench = Bench(CallableRuntime(agent))
        self.store = self.bench.store
        self._ids = SystemIds()
        self.turn = TurnId("")

    async def begin(self) -> Executor:
        await self.store.create()
        self.turn = await self.store.submit("go")
        return await self.claim()

    async def claim(self) -> Executor:
        command = commands.ClaimTurn(
            session_id=self.store.session_id, key=CommandKey(self._ids.uuid7()), worker_id=WORKER, take_over=True
        )
        reply = await self.store.run(command, replies.ClaimReply)
        assert reply.claim is not None
        return self.bench.of(reply.claim)

    async def die(self, executor: Executor, ready: Callable[[], bool]) -> None:
        """Run until `ready`, then lose the worker."""
        running = asyncio.create_task(executor.run())

        async def reached() -> bool:
            return ready()

        await eventually(reached, "the attempt is far enough")
        executor.lost()
        await running
        self.store.state.claim = None

    async def answer(self, **said: bool) -> None:
        answers = {call: Answer(approved=approved, by="ann") for call, approved in said.items()}
        command = commands.ContinueTurn(
            session_id=self.store.session_id, key=CommandKey(self._ids.uuid7()), turn_id=self.turn, answers=answers
        )
        await self.store.execute(command)

    def texts(self) -> list[str]:
        return [i.text for i in self.store.data(self.turn, "item.completed") if i.kind == "text"]

    def results(self) -> list[tuple[str, bool, int]]:
        found = self.store.data(self.turn, "tool_result.snapshot")
        return [(r.output, r.final, r.revision) for r in found]

    def output(self) -> str | None:
        (done,) = self.store.data(self.turn, "turn.completed")
        text: str | None = done.output
        return text


async def test_a_second_attempt_goes_on_behind_the_last_batch() -> None:
    """Two calls under one id: the first has its result, the second runs again; text before the batch is not said again,
    and a result that is yielded again is not written again."""
    ran: list[str] = []
    hold = asyncio.Event()
    returned: list[Any] = []
    shown: list[Any] = []

    async def agent(turn: Turn) -> AsyncGenerator[Any, Any]:
        yield "One. "
        for number in range(2):
            known = yield ToolCall(tool_call_id="c", name="do", arguments={"n": number}, idempotent=True)
            returned.append(known.output if known else None)
            shown.append(turn.recorded["c"].output if "c" in turn.recorded else None)
            ran.append(f"{turn.attempt}.{number}") if known is None else None
            if number == 1 and turn.attempt == 1:
                await hold.wait()
            yield ToolResult(tool_call_id="c", output=f"attempt {turn.attempt} call {number}")
            yield f"Did {number}. "

    lives = Lives(agent)
    await lives.die(await lives.begin(), lambda: ran == ["1.0", "1.1"])
    await (await lives.claim()).run()
    assert ran == ["1.0", "1.1", "2.1"]
    assert returned == [None, None, "attempt 1 call 0", None]
    assert shown == returned
    assert lives.results() == [("attempt 1 call 0", True, 1), ("attempt 2 call 1", True, 1)]
    superseded = [i for e in lives.store.data(lives.turn, "item.superseded") for i in e.item_ids]
    kept = [
        i.text
        for i in lives.store.data(lives.turn, "item.completed")
        if i.kind == "text" and i.item_id not in superseded
    ]
    assert kept == ["One. ", "Did 0. ", "Did 1. "]
    assert lives.output() == "Did 1. "


async def test_who_lost_the_turn_before_it_read_the_log_runs_no_tool_that_its_successor_has_begun() -> None:
    """Frozen right behind its claim, for longer than its lease: the log then shows a call of the next attempt as
    started, and this worker must neither take it for its own nor run its tool."""
    ran: list[int] = []
    hold = asyncio.Event()

    async def agent(turn: Turn) -> AsyncGenerator[Any, Any]:
        yield "Begun. "
        if turn.attempt == 1:
            await hold.wait()
        known = yield ToolCall(tool_call_id="c", name="pay")
        if known is None:
            ran.append(turn.attempt)
            await hold.wait()
        yield ToolResult(tool_call_id="c", output="paid")

    lives = Lives(agent)
    await lives.die(await lives.begin(), lambda: True)
    frozen = await lives.claim()
    lives.store.state.claim = None
    running = asyncio.create_task((await lives.claim()).run())

    async def begun() -> bool:
        return ran == [3]

    await eventually(begun, "the successor pays")
    await frozen.run()
    assert ran == [3]
    assert frozen.ended == "lost"
    hold.set()
    await running
    assert ran == [3]
    assert lives.results() == [("paid", True, 1)]


async def test_code_that_does_not_yield_a_recorded_result_again_goes_on_as_well() -> None:
    ready = asyncio.Event()

    async def agent(turn: Turn) -> AsyncGenerator[Any, Any]:
        known = yield ToolCall(tool_call_id="c", name="do")
        if known is None:
            yield ToolResult(tool_call_id="c", output="once")
        yield "After. "
        if turn.attempt == 1:
            ready.set()
            await asyncio.Event().wait()

    lives = Lives(agent)
    await lives.die(await lives.begin(), lambda: ready.is_set() and len(lives.results()) == 1)
    await (await lives.claim()).run()
    assert lives.results() == [("once", True, 1)]
    assert lives.output() == "After. "


async def test_a_run_that_takes_another_way_is_recorded_from_there() -> None:
    ready = asyncio.Event()

    async def agent(turn: Turn) -> AsyncGenerator[Any, Any]:
        yield f"Attempt {turn.attempt}. "
        name = "first" if turn.attempt == 1 else "other"
        yield ToolCall(tool_call_id=name, name=name, idempotent=True)
        yield ToolResult(tool_call_id=name, output=name)
        yield f"Said by {turn.attempt}. "
        if turn.attempt == 1:
            ready.set()
            await asyncio.Event().wait()

    lives = Lives(agent)
    await lives.die(await lives.begin(), lambda: ready.is_set() and len(lives.results()) == 1)
    await (await lives.claim()).run()
    assert lives.results() == [("first", True, 1), ("other", True, 1)]
    assert lives.output() == "Said by 2. "


async def test_each_pause_has_its_own_answers_though_the_ids_repeat() -> None:
    async def agent(turn: Turn) -> AsyncGenerator[Any, Any]:
        for number in range(3):
            yield f"Question {number}. "
            answers = yield Pause(requirements=[Requirement(tool_call_id="q", kind="approval", tool_name="do")])
            yield f"{number}:{answers['q'].approved} "

    lives = Lives(agent)
    executor = await lives.begin()
    for approved in (True, False, True):
        await executor.run()
        assert lives.store.types(lives.turn)[-1] == "turn.paused"
        await lives.answer(q=approved)
        executor = await lives.claim()
    await executor.run()
    said = ["Question 0. ", "0:True Question 1. ", "1:False Question 2. ", "2:True "]
    assert lives.texts() == said
    assert len(lives.store.data(lives.turn, "turn.paused")) == 3


async def test_a_tool_begun_before_a_pause_counts_its_results_on() -> None:
    """Invariant of the audit: revisions of a call ascend within an attempt; and what never got a result gets one."""

    async def agent(turn: Turn) -> AsyncGenerator[Any, Any]:
        yield ToolCall(tool_call_id="c", name="do")
        yield ToolResult(tool_call_id="c", output="half", final=False)
        yield ToolCall(tool_call_id="never", name="do")
        yield Pause(requirements=[Requirement(tool_call_id="q", kind="approval", tool_name="do")])
        yield ToolResult(tool_call_id="c", output="whole")

    lives = Lives(agent)
    await (await lives.begin()).run()
    await lives.answer(q=True)
    await (await lives.claim()).run()
    assert lives.results() == [("half", False, 1), ("whole", True, 2), ("The tool gave no result.", True, 1)]
    assert len(lives.store.data(lives.turn, "tool.started")) == 2


@pytest.mark.parametrize(
    ("fate", "state", "output"),
    [
        (Fate(state="completed", output="there"), "completed", "there"),
        (Fate(state="running"), "running", None),
        (Fate(state="unknown"), "unknown", None),
        ("nonsense", "unknown", None),
    ],
)
async def test_a_function_says_whom_to_ask(fate: Any, state: str, output: str | None) -> None:
    async def query(turn_id: str) -> Any:
        assert turn_id == "t"
        return fate

    @asked(query)
    async def agent(turn: Turn) -> AsyncGenerator[Any, Any]:
        yield "x"

    runtime = CallableRuntime(agent)
    assert runtime.capabilities.can_be_asked
    answered = await runtime.query("s", TurnId("t"))  # type: ignore[arg-type]
    assert (answered.state, answered.output) == (state, output)
