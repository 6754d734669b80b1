"""Hooks of an agent: what runs in line and in which order, what is rewritten, refused, kept and scheduled."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from domain import commands
from domain.ids import CommandKey, TurnId
from domain.parts import Answer, TextPart
from services.paths import UnloadableObject
from services.worker.agents import load_agents
from services.worker.hooks.hook import DoubleHook, Hooks, resolved
from services.worker.runtimes.callable import CallableRuntime
from services.worker.runtimes.pydantic_ai import PydanticAIRuntime
from tests.support.execution import Bench
from turnlog import HookRun, Pause, Refused, Requirement, evaluation, guardrail, hook, hooked, verify_webhook, webhook

seen: list[tuple[str, str, str | None]] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    seen.clear()


async def echo(turn: Any) -> AsyncIterator[str]:
    seen.append(("agent", turn.input, None))
    yield turn.input


async def note(run: HookRun) -> None:
    seen.append((run.hook, run.input, run.output))


def louder(run: HookRun) -> str:
    seen.append((run.hook, run.input, run.output))
    return run.input + "!"


@guardrail
async def no_secrets(run: HookRun) -> None:
    seen.append((run.hook, run.input, run.output))
    if "secret" in (run.output or run.input):
        raise Refused("Nothing secret, please.")


@evaluation
async def judge(run: HookRun) -> dict[str, Any]:
    seen.append((run.hook, run.input, run.output))
    return {"length": len(run.output or "")}


def bench(hooks: Hooks, agent: Any = echo) -> Bench:
    return Bench(CallableRuntime(agent), hooks=hooks)


async def test_hooks_in_line_run_in_order_around_the_agent() -> None:
    hooks = resolved(hooked(echo, pre=[note, louder, no_secrets], post=[hook(name="after")(note), judge]))
    made = bench(hooks)
    turn = await made.turn("hi")
    assert seen == [
        ("note", "hi", None),
        ("louder", "hi", None),
        ("no_secrets", "hi!", None),
        ("agent", "hi!", None),
        ("after", "hi!", "hi!"),
        ("judge", "hi!", "hi!"),
    ]
    assert made.store.types(turn) == [
        "turn.queued", "turn.started", "turn.input_rewritten", "item.completed", "checkpoint.reached",
        "turn.completed", "hook.scheduled", "hook.completed",
    ]  # fmt: skip
    (rewritten,) = made.store.data(turn, "turn.input_rewritten")
    assert (rewritten.by, rewritten.input) == ("louder", [TextPart("hi!")])
    (scheduled,), (done,) = made.store.data(turn, "hook.scheduled"), made.store.data(turn, "hook.completed")
    assert (scheduled.kind, scheduled.job_id, done.result) == ("evaluation", done.job_id, {"length": 3})
    assert made.told == [], "it is done already"
    again = await made.turn("more")
    # The model of the next turn sees what this one really got.
    assert made.store.state.turns[again].parent_turn_id == turn  # type: ignore[index]


@pytest.mark.parametrize(("text", "agent_ran"), [("a secret", False), ("s e c r e t", True)])
async def test_a_guardrail_refuses_input_and_output_before_anybody_is_told_that_it_went_well(
    text: str, agent_ran: bool
) -> None:
    async def join(turn: Any) -> AsyncIterator[str]:
        seen.append(("agent", turn.input, None))
        yield turn.input.replace(" ", "")

    after = hook(name="after", background=True)(note)
    made = bench(resolved(hooked(join, pre=[no_secrets], post=[_output_guard(), after])), join)
    turn = await made.turn(text)
    (failed,) = made.store.data(turn, "turn.failed")
    assert (failed.error.code, failed.error.message) == ("input_refused", "Nothing secret, please.")
    assert (("agent", text, None) in seen) == agent_ran
    assert "hook.scheduled" not in made.store.types(turn), "it follows turns that complete"


def _output_guard() -> Any:
    @guardrail
    async def output_guard(run: HookRun) -> None:
        if "secret" in (run.output or ""):
            raise Refused("Nothing secret, please.")

    return output_guard


async def test_a_hook_that_fails_in_line_fails_the_turn() -> None:
    async def broken(run: HookRun) -> None:
        raise RuntimeError("with words that are nobody's business")

    made = bench(resolved(hooked(echo, post=[broken])))
    (failed,) = made.store.data(await made.turn("x"), "turn.failed")
    assert failed.error.code == "agent_error"
    assert "nobody" not in failed.error.message


async def test_background_hooks_are_scheduled_with_the_end_that_they_follow() -> None:
    every = hook(name="every", background=True, after=["completed", "failed", "interrupted"])(note)
    told = hook(name="told", background=True)(note)
    declared = hooked(echo, pre=[note, no_secrets], post=[told, every, judge], run_hooks_in_background=True)
    made = bench(resolved(declared))
    good = await made.turn("hi")
    assert seen == [("no_secrets", "hi", None), ("agent", "hi", None)], "guardrails are always in line"
    jobs = made.store.data(good, "hook.scheduled")
    assert [job.hook for job in jobs] == ["note", "told", "every", "judge"] == made.told
    assert [job.kind for job in jobs] == ["hook", "hook", "hook", "evaluation"]
    assert len({job.job_id for job in jobs}) == 4
    assert made.store.types(good)[-5:] == ["turn.completed", *["hook.scheduled"] * 4]
    made.told.clear()
    bad = await made.turn("secret")
    assert [job.hook for job in made.store.data(bad, "hook.scheduled")] == ["note", "every"] == made.told


async def test_after_a_pause_no_pre_hook_runs_again_and_the_answer_is_still_of_the_rewritten_input() -> None:
    async def asking(turn: Any) -> AsyncIterator[Any]:
        seen.append(("agent", turn.input, None))
        yield Pause(requirements=[Requirement(tool_call_id="c", kind="approval", tool_name="t")])
        yield "done"

    made = bench(resolved(hooked(asking, pre=[louder], post=[note])), asking)
    turn = await made.turn("hi")
    assert seen == [("louder", "hi", None), ("agent", "hi!", None)], "post-hooks wait for the real end"
    store = made.store
    await store.execute(
        commands.ContinueTurn(
            session_id=store.session_id, key=CommandKey("a"), turn_id=TurnId(turn),
            answers={"c": Answer(approved=True)},
        )
    )  # fmt: skip
    seen.clear()
    await made.of(await store.claim()).run()
    assert seen == [("agent", "hi!", None), ("note", "hi!", "done")]
    assert len(store.data(turn, "turn.input_rewritten")) == 1


async def test_the_next_attempt_goes_on_behind_the_hook_that_rewrote_last() -> None:
    """The worker died after the second hook's input was committed and before the agent began."""
    died = asyncio.Event()

    @hook(name="third")
    async def third(run: HookRun) -> None:
        seen.append((run.hook, run.input, None))
        if not died.is_set():
            died.set()
            await asyncio.Event().wait()

    made = bench(resolved(hooked(echo, pre=[note, louder, third])))
    executor = await made.executor("hi")
    running = asyncio.create_task(executor.run())
    await died.wait()
    while "turn.input_rewritten" not in made.store.types(executor.claim.turn_id):
        await asyncio.sleep(0.001)
    executor.release()
    await running
    assert made.store.types(executor.claim.turn_id)[-1] == "turn.released"
    seen.clear()
    await made.of(await made.store.claim()).run()
    assert seen == [("third", "hi!", None), ("agent", "hi!", None)]
    assert made.store.types(executor.claim.turn_id)[-1] == "turn.completed"


async def test_a_hand_back_while_a_post_hook_runs_completes_nothing() -> None:
    """Nor does it pass the guardrail over: the next attempt asks it."""
    began = asyncio.Event()

    @guardrail
    async def slow(run: HookRun) -> None:
        began.set()
        if len(made.store.data(executor.claim.turn_id, "turn.started")) == 1:
            await asyncio.Event().wait()
        seen.append(("slow", run.input, run.output))

    made = bench(resolved(hooked(echo, post=[slow])))
    executor = await made.executor("hi")
    running = asyncio.create_task(executor.run())
    await began.wait()
    executor.release()
    await running
    turn = executor.claim.turn_id
    assert made.store.types(turn)[-1] == "turn.released"
    await made.of(await made.store.claim()).run()
    assert made.store.types(turn)[-1] == "turn.completed"
    assert ("slow", "hi", "hi") in seen


def test_names_are_unique_and_an_agent_file_may_name_a_hooked_agent() -> None:
    with pytest.raises(DoubleHook, match="`note`"):
        resolved(hooked(echo, pre=[note], post=[note]))
    (loaded,) = load_agents(["tests.support.hook_agents:watched"])
    assert [one.name for one in loaded.hooks.pre] == ["no_secrets", "louder"]
    with pytest.raises(UnloadableObject, match="two hooks are named"):
        load_agents(["tests.support.hook_agents:doubled"])


def test_webhooks_are_signed_with_a_time_and_checked_in_constant_time() -> None:
    from services.worker.hooks.signing import sign

    body, secret = msgspec.json.encode({"type": "turn.completed"}), "a secret of some length"
    signature = sign(secret, body, "1000")
    assert verify_webhook(secret, body, "1000", signature, now=1200.0)
    assert not verify_webhook(secret, body, "1000", signature, now=1301.0), "too old"
    assert not verify_webhook(secret, body, "1001", signature, now=1200.0), "another time"
    assert not verify_webhook(secret, body + b" ", "1000", signature, now=1200.0)
    assert not verify_webhook("another secret of length", body, "1000", signature, now=1200.0)
    for broken in ("", "v1=", "ü", signature[:-1]):
        assert not verify_webhook(secret, body, "1000", broken, now=1200.0)
    assert not verify_webhook(secret, body, "١٢", signature, now=1200.0)
    with pytest.raises(ValueError, match="16 characters"):
        webhook("https://example.org", secret="short")
    with pytest.raises(ValueError, match="https"):
        webhook("ftp://example.org", secret=secret)


async def test_a_pause_that_meets_a_stored_interrupt_is_an_end_that_hooks_follow() -> None:
    async def asking(turn: Any) -> AsyncIterator[Any]:
        store = made.store
        await store.execute(
            commands.InterruptTurn(session_id=store.session_id, key=CommandKey("stop"), turn_id=TurnId(turn.turn_id))
        )
        yield Pause(requirements=[Requirement(tool_call_id="c", kind="approval", tool_name="t")])

    every = hook(name="every", background=True, after=["completed", "failed", "interrupted"])(note)
    made = bench(resolved(hooked(asking, post=[every, hook(name="after", background=True)(note)])), asking)
    turn = await made.turn("hi")
    assert made.store.types(turn)[-2:] == ["turn.interrupted", "hook.scheduled"]
    assert made.told == ["every"]


async def test_hooks_around_a_pydantic_ai_agent() -> None:
    """A model that answers what it was asked: the rewritten input reaches it, and the evaluation sees what it said."""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        (asked,) = [part for part in messages[-1].parts if isinstance(part, UserPromptPart)]
        yield f"you said {asked.content}"

    agent = Agent(FunctionModel(stream_function=answer))
    hooks = resolved(hooked(agent, pre=[louder, no_secrets], post=[judge, hook(name="later", background=True)(note)]))
    made = Bench(PydanticAIRuntime(agent), hooks=hooks)
    turn = await made.turn("hi")
    assert made.store.data(turn, "turn.completed")[0].output == "you said hi!"
    assert made.store.data(turn, "hook.completed")[0].result == {"length": len("you said hi!")}
    assert made.told == ["later"]
    refused = await made.turn("a secret")
    assert made.store.data(refused, "turn.failed")[0].error.code == "input_refused"
