"""The executor on the in-memory store: commits before tools, one command in flight, lost claims, interrupts, errors."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from domain import commands
from domain.errors import InternalFault, StaleFence, StoreUnavailable
from domain.expand import expand
from domain.ids import CommandKey, TurnId
from domain.parts import Answer, Requirement
from services.worker.executor.bounds import Bounds
from services.worker.runtimes.callable import CallableRuntime
from tests.support.execution import SECRET, Bench, assert_nowhere
from tests.support.waiting import eventually
from turnlog import AgentError, Pause, Reasoning, RuntimeEvent, ToolCall, ToolProgress, ToolResult, Turn, Usage


def bench(function: Any, **bounds: Any) -> Bench:
    return Bench(CallableRuntime(function), Bounds(**bounds))


async def until(condition: Any, what: str) -> None:
    async def asked() -> bool:
        return bool(condition())

    await eventually(asked, what, pause=0.001)


def asking(**fields: Any) -> Requirement:
    return Requirement(**{"tool_call_id": "q", "kind": "approval", "tool_name": "do", **fields})


def numbers_of(b: Bench) -> list[int]:
    """Frame numbers of the committed events, in log order."""
    return [getattr(event.event(), "frame", 0) for event in b.store.events if b'"frame":' in event.payload]


async def everything(turn: Turn) -> AsyncIterator[Any]:
    yield Reasoning("hm")
    yield "Look"
    yield "ing"
    yield ToolCall(tool_call_id="c1", name="look", arguments={"q": 1}, idempotent=True)
    yield ToolProgress(tool_call_id="c1", fraction=0.5)
    yield ToolResult(tool_call_id="c1", output={"found": [1]})
    yield RuntimeEvent("step", {"n": 1})
    yield Usage(model="m", input_tokens=1, output_tokens=2)
    yield "done"


async def test_a_turn_of_everything() -> None:
    b = bench(everything)
    turn = await b.turn("go")
    assert b.store.types(turn) == [
        "turn.queued",
        "turn.started",
        "item.completed",
        "item.completed",
        "item.completed",
        "tool.started",
        "tool_result.snapshot",
        "checkpoint.reached",
        "runtime.event",
        "usage.recorded",
        "item.completed",
        "checkpoint.reached",
        "turn.completed",
    ]
    assert b.store.data(turn, "tool_result.snapshot")[0].output == '{"found":[1]}'
    (ended,) = b.store.data(turn, "turn.completed")
    assert ended.output == "done"
    assert ended.usage == {"requests": 1, "input_tokens": 1, "output_tokens": 2}
    frames = expand(await b.store.turn_events(b.store.session_id, b.store.events[1].turn_id))  # type: ignore[arg-type]
    assert [frame.frame - 2**32 for frame in frames] == list(range(len(frames)))
    assert b.lease.touches


async def test_a_call_is_committed_before_the_generator_goes_on() -> None:
    seen: list[list[str]] = []

    async def agent(turn: Turn) -> AsyncIterator[Any]:
        yield "text"
        yield ToolCall(tool_call_id="c1", name="look")
        seen.append(b.store.types(turn.turn_id))
        yield ToolResult(tool_call_id="c1", output="x")

    b = bench(agent)
    b.store.delay = 0.05
    await b.turn("go")
    assert seen == [["turn.queued", "turn.started", "item.completed", "item.completed", "tool.started"]]


async def test_call_and_start_are_one_append() -> None:
    b = bench(everything)
    await b.turn("go")
    appends = [
        [draft.data.type for draft in c.events] for c in b.store.commands if isinstance(c, commands.RecordEvents)
    ]
    assert any(types[-2:] == ["item.completed", "tool.started"] for types in appends)


async def test_what_comes_while_a_command_is_in_flight_goes_into_the_next() -> None:
    async def agent(turn: Turn) -> AsyncIterator[Any]:
        for number in range(200):
            yield RuntimeEvent("step", number)

    b = bench(agent)
    b.store.delay = 0.02
    turn = await b.turn("go")
    assert [event.payload for event in b.store.data(turn, "runtime.event")] == list(range(200))
    sent = [c for c in b.store.commands if isinstance(c, commands.ExecutorCommand)]
    assert len(sent) < 20
    assert [command.ordinal for command in sent] == list(range(1, len(sent) + 1))
    assert {command.key for command in sent} == {f"x:{turn}:1:{n}" for n in range(1, len(sent) + 1)}


async def test_a_fast_runtime_waits_for_the_store() -> None:
    yielded = 0

    async def agent(turn: Turn) -> AsyncIterator[Any]:
        nonlocal yielded
        for _ in range(100):
            yielded += 1
            yield "x" * 1000
            yield RuntimeEvent("cut")

    b = bench(agent, pending_bytes=4000)
    executor = await b.executor("go")
    async with b.store._lock:
        running = asyncio.create_task(executor.run())
        await until(lambda: yielded > 1, "the runtime runs")
        before = -1
        while yielded != before:
            before = yielded
            await asyncio.sleep(0.05)
        assert yielded < 30
    await running
    assert yielded == 100


async def test_a_lost_reply_is_answered_by_the_repeat() -> None:
    """The commit may have happened: the same key settles it, and nothing is doubled."""
    b = bench(everything)
    b.store.faults = [StoreUnavailable(), StoreUnavailable(), StoreUnavailable()]
    turn = await b.turn("go")
    types = b.store.types(turn)
    assert types.count("tool.started") == types.count("turn.completed") == 1
    numbers = numbers_of(b)
    assert numbers == sorted(set(numbers))


async def test_a_stale_fence_stops_the_turn_at_once() -> None:
    ran: list[str] = []

    async def agent(turn: Turn) -> AsyncIterator[Any]:
        try:
            yield ToolCall(tool_call_id="c1", name="look")
            ran.append("tool")
        finally:
            ran.append("closed")

    b = bench(agent)
    b.store.faults = [StaleFence()]
    executor = await b.executor("go")
    assert await executor.run() is None
    assert ran == ["closed"]
    assert b.store.types(executor.claim.turn_id) == ["turn.queued", "turn.started"]


async def test_a_session_that_cannot_be_written_ends_no_worker() -> None:
    """A fault of ours meets every command of it, the one that would end the turn too: other turns go on."""
    b = bench(everything)
    b.store.faults = [InternalFault()] * 10
    executor = await b.executor("go")
    assert await executor.run() is None
    assert b.store.types(executor.claim.turn_id) == ["turn.queued", "turn.started"]


async def test_a_claim_that_a_heartbeat_calls_lost_writes_nothing_more() -> None:
    async def agent(turn: Turn) -> AsyncIterator[Any]:
        yield "half"
        await asyncio.Event().wait()

    b = bench(agent)
    executor = await b.executor("go")
    running = asyncio.create_task(executor.run())
    await until(lambda: b.shown.live, "text is shown")
    executor.lost()
    assert await running is None
    assert b.store.types(executor.claim.turn_id) == ["turn.queued", "turn.started"]


async def test_no_tool_starts_past_the_lease() -> None:
    """The commit went through, then the process was frozen: the gate looks at the clock once more."""
    ran: list[str] = []
    renewed = asyncio.Event()

    async def agent(turn: Turn) -> AsyncIterator[Any]:
        yield ToolCall(tool_call_id="c1", name="look")
        ran.append("tool")
        yield ToolResult(tool_call_id="c1", output="x")

    b = bench(agent)
    b.lease.ahead = renewed.wait  # type: ignore[assignment]
    executor = await b.executor("go")
    running = asyncio.create_task(executor.run())
    await until(lambda: "tool.started" in b.store.types(executor.claim.turn_id), "the start is committed")
    for _ in range(20):
        await asyncio.sleep(0)
    assert ran == []
    renewed.set()
    await running
    assert ran == ["tool"]


async def test_p03_an_interrupt_keeps_the_partial_text_under_its_message_id() -> None:
    async def agent(turn: Turn) -> AsyncIterator[Any]:
        yield "half a "
        await asyncio.Event().wait()

    b = bench(agent)
    executor = await b.executor("go")
    running = asyncio.create_task(executor.run())
    await until(lambda: b.shown.live, "text is shown")
    executor.interrupt()
    await running
    turn = executor.claim.turn_id
    (item,) = b.store.data(turn, "item.completed")
    assert item.partial
    assert item.text == "half a "
    assert item.message_id.encode() in b.shown.live[0]
    assert b.store.types(turn)[-1] == "turn.interrupted"


async def test_a_stored_interrupt_is_seen_in_the_reply_of_a_write() -> None:
    async def agent(turn: Turn) -> AsyncIterator[Any]:
        yield "one"
        await going.wait()
        yield RuntimeEvent("two")
        await asyncio.Event().wait()

    going = asyncio.Event()
    b = bench(agent)
    executor = await b.executor("go")
    running = asyncio.create_task(executor.run())
    await until(lambda: b.shown.live, "text is shown")
    turn = executor.claim.turn_id
    await b.store.execute(
        commands.InterruptTurn(session_id=b.store.session_id, key="i", turn_id=turn, by="ann")  # type: ignore[arg-type]
    )
    going.set()
    await running
    assert b.store.data(turn, "turn.interrupted")[0].by == "ann"


async def test_p07_the_next_turn_sees_a_cut_call_closed() -> None:
    histories: list[Any] = []

    async def agent(turn: Turn) -> AsyncIterator[Any]:
        histories.append(turn.history)
        yield "Looking"
        yield ToolCall(tool_call_id="c1", name="look", arguments={"q": 1})
        if not turn.history:
            await asyncio.Event().wait()
        yield ToolResult(tool_call_id="c1", output="x")

    b = bench(agent)
    executor = await b.executor("one")
    running = asyncio.create_task(executor.run())
    await until(lambda: "tool.started" in b.store.types(executor.claim.turn_id), "the tool starts")
    executor.interrupt()
    await running
    await b.turn("two")
    told = [(message.role, message.text) for message in histories[1]]
    assert told == [("user", "one"), ("assistant", "Looking"), ("tool", "The call was interrupted.")]
    assert histories[1][1].tool_calls[0].tool_call_id == histories[1][2].tool_call_id == "c1"


async def test_a_runtime_that_holds_on_is_cancelled() -> None:
    async def agent(turn: Turn) -> AsyncIterator[Any]:
        yield "x"
        for _ in range(2):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                yield "I go on"

    b = bench(agent, interrupt_seconds=0.05)
    executor = await b.executor("go")
    running = asyncio.create_task(executor.run())
    await until(lambda: b.shown.live, "text is shown")
    executor.interrupt()
    await running
    assert b.store.types(executor.claim.turn_id)[-1] == "turn.interrupted"


async def test_an_interrupt_before_the_start_runs_nothing() -> None:
    ran: list[str] = []

    async def agent(turn: Turn) -> AsyncIterator[Any]:
        ran.append("ran")
        yield "x"

    b = bench(agent)
    executor = await b.executor("go")
    executor.interrupt()
    await executor.run()
    assert ran == []
    assert b.store.types(executor.claim.turn_id)[-1] == "turn.interrupted"


async def test_a_released_turn_is_handed_back_with_what_it_had() -> None:
    async def agent(turn: Turn) -> AsyncIterator[Any]:
        yield "half"
        await asyncio.Event().wait()

    b = bench(agent)
    executor = await b.executor("go")
    running = asyncio.create_task(executor.run())
    await until(lambda: b.shown.live, "text is shown")
    executor.release()
    await running
    assert b.store.types(executor.claim.turn_id)[-2:] == ["item.completed", "turn.released"]
    assert b.store.data(executor.claim.turn_id, "item.completed")[0].partial


async def test_a_turn_that_cleans_up_may_be_told_to_end_again() -> None:
    """A drain, an interrupt and a second drain meet while users' code is still in its `finally`."""
    cleaning, cleaned = asyncio.Event(), asyncio.Event()

    async def agent(turn: Turn) -> AsyncIterator[Any]:
        try:
            yield "half"
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await cleaned.wait()

    b = bench(agent)
    executor = await b.executor("go")
    running = asyncio.create_task(executor.run())
    await until(lambda: b.shown.live, "text is shown")
    executor.release()
    await cleaning.wait()
    executor.release()
    executor.interrupt()
    executor.release()
    cleaned.set()
    await running
    assert b.store.types(executor.claim.turn_id)[-1] in ("turn.released", "turn.interrupted")


async def test_errors_of_agents_are_told_without_a_trace() -> None:
    async def agent(turn: Turn) -> AsyncIterator[Any]:
        yield "half"
        try:
            raise OSError(f"postgresql://me:{SECRET}@db/x")
        except OSError as error:
            raise KeyError(SECRET) from error

    b = bench(agent)
    turn = await b.turn("go")
    (failed,) = b.store.data(turn, "turn.failed")
    assert failed.error.code == "agent_error"
    assert failed.error.message == "KeyError"
    assert b.store.data(turn, "item.completed")[0].partial
    assert_nowhere(b, SECRET)


async def test_an_agent_error_is_told_as_it_is_but_for_its_length() -> None:
    async def agent(turn: Turn) -> AsyncIterator[Any]:
        yield "half"
        raise AgentError("No printer\nis there.\x00" + "x" * 3000, retryable=turn.input == "go")

    b = bench(agent)
    (failed,) = b.store.data(await b.turn("go"), "turn.failed")
    assert failed.error.code == "agent_error"
    assert failed.error.message.startswith("No printer\nis there.\ufffdxxx")
    assert len(failed.error.message) == 2000
    assert failed.error.retryable
    (failed,) = b.store.data(await b.turn("stay"), "turn.failed")
    assert not failed.error.retryable


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        (42, "yielded a int"),
        (ToolResult(tool_call_id="never", output="x"), "no ToolCall 'never'"),
        (RuntimeEvent("odd", object()), "cannot be stored as JSON"),
        (Reasoning(5), "Reasoning.text is a int, not a str"),  # type: ignore[arg-type]
        (Usage(model="m", input_tokens=1.5), "Usage.input_tokens is a float, not a int"),  # type: ignore[arg-type]
        (ToolCall(tool_call_id="c", name="x", idempotent=None), "ToolCall.idempotent is a NoneType"),  # type: ignore[arg-type]
        (Pause(requirements=[asking(kind="perhaps")]), "has not the documented shape at `$.kind`"),
        (Pause(requirements=[asking(arguments={"o": object()})]), "cannot be stored as JSON"),
        (Pause(requirements=[asking(expires_at="tomorrow")]), "expires_at"),
        (Pause(requirements=[asking(expires_at="2026-01-31T12:00:00")]), "expires_at"),
        (Pause(requirements=[asking(), asking()]), "two requirements for one tool call"),
    ],
)
async def test_what_an_agent_may_not_yield_fails_its_turn(thing: Any, said: str) -> None:
    async def agent(turn: Turn) -> AsyncIterator[Any]:
        yield thing

    b = bench(agent)
    turn = await b.turn("go")
    (failed,) = b.store.data(turn, "turn.failed")
    assert failed.error.code == "agent_error"
    assert said in failed.error.message
    log = [event.event() for event in b.store.events if event.turn_id == turn]  # everything can be read again
    assert len(log) == len(b.store.types(turn))
    numbers = numbers_of(b)
    assert numbers == [2**32 + n for n in range(1, len(numbers) + 1)]


async def test_sys_exit_in_an_agent_ends_its_turn_only() -> None:
    async def agent(turn: Turn) -> AsyncIterator[Any]:
        yield "x"
        raise SystemExit(3)

    b = bench(agent)
    (failed,) = b.store.data(await b.turn("go"), "turn.failed")
    assert failed.error.code == "agent_error"


async def test_c04_each_turn_sees_the_turns_before_it() -> None:
    """Three inputs queued at once: turn 2 sees u1 a1, turn 3 sees u1 a1 u2 a2."""
    told: list[Any] = []

    async def agent(turn: Turn) -> AsyncIterator[Any]:
        told.append([(message.role, message.text) for message in turn.history] + [("user", turn.input)])
        yield f"a{turn.input[1:]}"

    b = bench(agent)
    await b.store.create()
    for number in (1, 2, 3):
        await b.store.submit(f"u{number}")
    for _ in range(3):
        await b.of(await b.store.claim()).run()
    assert told == [
        [("user", "u1")],
        [("user", "u1"), ("assistant", "a1"), ("user", "u2")],
        [("user", "u1"), ("assistant", "a1"), ("user", "u2"), ("assistant", "a2"), ("user", "u3")],
    ]


async def test_a_pause_ends_the_leg_and_the_answers_come_back() -> None:
    async def agent(turn: Turn) -> AsyncGenerator[Any, Any]:
        yield "May I? "
        answers = yield Pause(requirements=[Requirement(tool_call_id="q", kind="approval", tool_name="do")])
        yield "yes" if answers["q"].approved else "no"

    b = bench(agent)
    turn = await b.turn("go")
    assert b.store.types(turn)[-2:] == ["checkpoint.reached", "turn.paused"]
    await b.store.execute(
        commands.ContinueTurn(
            session_id=b.store.session_id,
            key="a",  # type: ignore[arg-type]
            turn_id=turn,  # type: ignore[arg-type]
            answers={"q": Answer(approved=True, by="ann")},
        )
    )
    await b.of(await b.store.claim()).run()
    texts = [item.text for item in b.store.data(turn, "item.completed")]
    assert texts == ["May I? ", "yes"]
    assert b.store.types(turn)[-1] == "turn.completed"
    numbers = numbers_of(b)
    assert numbers == sorted(set(numbers))
    assert [message.role for message in _history_after(b, turn)] == ["user", "assistant", "assistant"]


async def test_each_question_has_an_item_of_its_own_also_under_a_repeated_call_id() -> None:
    async def agent(turn: Turn) -> AsyncGenerator[Any, Any]:
        yield "First "
        yield Pause(requirements=[asking()])
        yield ToolCall(tool_call_id="q", name="do", idempotent=True)
        yield Pause(requirements=[asking()])
        yield ToolResult(tool_call_id="q", output="done")

    b = bench(agent)
    turn = await b.turn("go")
    for key in "ab":
        command = commands.ContinueTurn(
            session_id=b.store.session_id,
            key=CommandKey(key),
            turn_id=TurnId(turn),
            answers={"q": Answer(approved=True, by="ann")},
        )
        await b.store.execute(command)
        await b.of(await b.store.claim()).run()
    assert b.store.types(turn)[-1] == "turn.completed"
    items = [paused.requirements[0].item_id for paused in b.store.data(turn, "turn.paused")]
    called = next(i.item_id for i in b.store.data(turn, "item.completed") if i.kind == "tool_call")
    assert items[0] not in (None, called)
    assert items[1] == called


def _history_after(b: Bench, turn: str) -> list[Any]:
    from domain.history import PastTurn
    from services.worker.runtimes import transcript

    blobs = [e.private for e in b.store.events if e.turn_id == turn and e.type == "checkpoint.reached" and e.private]
    return transcript.history([PastTurn(turn_id=turn, input=[], messages=blobs)])  # type: ignore[arg-type]


async def test_a_huge_delta_is_stored_in_parts() -> None:
    async def agent(turn: Turn) -> AsyncIterator[Any]:
        yield "漢" * 1_000_000

    b = bench(agent)
    turn = await b.turn("go")
    items = b.store.data(turn, "item.completed")
    assert "".join(item.text for item in items) == "漢" * 1_000_000
    assert len(items) > 10
    assert len({item.message_id for item in items}) == 1
    assert max(len(event.payload) for event in b.store.events) < 300 * 1024
    assert b.store.data(turn, "turn.completed")[0].output is None
