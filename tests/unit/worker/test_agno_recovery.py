"""Agno components whose worker dies behind any of its commands: what has a result does not run again, what is recorded
is not asked again, and the turn ends as it would have."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from agno.agent import Agent
from agno.team import Team, TeamMode
from agno.workflow import Condition, Loop, Parallel, Router, Step, StepInput, StepOutput, Steps, Workflow

from tests.support.agno_script import Script
from tests.support.agno_turns import Turns, yes
from turnlog import idempotent

ran: list[str] = []
"""What tools and functions of steps did, since the last death."""

scripts: dict[str, Script] = {}
"""By id: how often each was asked, since the last death."""


@pytest.fixture(autouse=True)
def forget() -> None:
    ran.clear()
    scripts.clear()


def script(name: str, *says: Any, repeats: bool = False) -> Script:
    made = Script(id=name, says=says, repeats=repeats)
    made.asked = scripts.setdefault(name, made).asked
    return made


def requests() -> int:
    return sum(len(one.asked) for one in scripts.values())


@idempotent
async def look(q: str) -> str:
    """May run again."""
    ran.append(q)
    return f"saw {q}"


def act(q: str) -> str:
    """May not."""
    ran.append(q)
    return f"did {q}"


def agent() -> Agent:
    first, second = [("look", {"q": "a"}), ("look", {"q": "b"})], [("look", {"q": "c"})]
    return Agent(id="one", model=script("one", first, second, "all seen", repeats=True), tools=[look])


def careful() -> Agent:
    return Agent(id="one", model=script("one", [("act", {"q": "a"})], [("act", {"q": "b"})], "done"), tools=[act])


def _member(name: str, tool: Any = look) -> Agent:
    model = script(name, [(tool.__name__, {"q": f"{name}1"}), (tool.__name__, {"q": f"{name}2"})], f"{name} is done")
    return Agent(id=name, name=name, role="looks", model=model, tools=[tool])


def _to(member: str) -> tuple[str, dict[str, Any]]:
    return "delegate_task_to_member", {"member_id": member, "task": "look"}


def coordinate() -> Team:
    """Two members at once, then one of them again, and a tool of its own."""
    says = [_to("left"), _to("right")], [("look", {"q": "own"}), _to("left")], "all done"
    return Team(id="crew", model=script("crew", *says), members=[_member("left"), _member("right")], tools=[look])


def deep() -> Team:
    """A team in a team in a team: members' tools at depth 3."""
    inner = Team(id="inner", role="i", model=script("inner", [_to("leaf")], "inner done"), members=[_member("leaf")])
    middle = Team(id="middle", role="m", model=script("middle", [_to("inner")], "middle done"), members=[inner])
    return Team(id="top", model=script("top", [_to("middle")], "all done"), members=[middle])


def route() -> Team:
    members: list[Any] = [_member("left"), _member("right")]
    return Team(id="router", model=script("router", [_to("right")]), members=members, mode=TeamMode.route)


def broadcast() -> Team:
    said = [("delegate_task_to_members", {"task": "look"})]
    members: list[Any] = [_member("left"), _member("right")]
    return Team(id="choir", model=script("choir", said, "both did"), members=members, mode=TeamMode.broadcast)


def _say(name: str, text: str | None = None) -> Any:
    async def step(step_input: StepInput) -> StepOutput:
        ran.append(name)
        return StepOutput(content=text or f"{name} after {step_input.previous_step_content or step_input.input}")

    step.__name__ = name
    return step


def _flow(*, again: bool) -> Workflow:
    """Every kind of step. `again`: all of them may run again."""
    mark: Callable[[Any], Any] = idempotent if again else lambda step: step

    def step(name: str) -> Any:
        return Step(name=name, executor=mark(_say(name)))

    sayer = Step(
        name="agent", agent=Agent(id="sayer", model=script("sayer", [("look", {"q": "w"})], "w"), tools=[look])
    )
    chosen = step("chosen")
    return Workflow(
        id="flow",
        name="Flow",
        steps=[
            mark(sayer),
            Steps(name="both", steps=[step("s1"), step("s2")]),
            Loop(name="loop", steps=[step("turning")], max_iterations=2),
            Parallel(step("p1"), step("p2"), name="side"),
            Condition(name="if", evaluator=lambda _: False, steps=[step("then")], else_steps=[step("else")]),
            Router(name="which", selector=lambda _: [chosen], choices=[chosen, step("other")]),
            step("last"),
        ],
    )


def flow() -> Workflow:
    return _flow(again=True)


ORDER = ["w", "s1", "s2", "turning", "turning", "p1", "p2", "else", "chosen", "last"]


async def whole(make: Callable[[], Any]) -> tuple[str, int, Counter[str]]:
    """Output, requests and what ran, when nobody dies."""
    turns = Turns(make)
    turn = await turns.run()
    assert turns.store.types(turn)[-1] == "turn.completed", turns.end(turn)
    found = turns.output(turn), requests(), Counter(ran)
    forget_all()
    return found


def forget_all() -> None:
    ran.clear()
    for one in scripts.values():
        one.asked.clear()


STRIDES = [4, pytest.param(1, marks=pytest.mark.soak)]
"""Behind every fourth command, or every one."""


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("make", [agent, coordinate, deep, route, broadcast], ids=lambda make: make.__name__)
async def test_a_death_behind_any_command_costs_nothing_that_is_recorded(make: Callable[[], Any], stride: int) -> None:
    output, all_requests, everything = await whole(make)
    died, count = True, -1
    while died:
        count += stride
        turns = Turns(make)
        executor = await turns.begin()
        died = await turns.die_after(executor, count)
        turn = executor.claim.turn_id
        results = {one.item_id for one in turns.store.data(turn, "tool_result.snapshot") if one.final}
        calls = [item for item in turns.store.data(turn, "item.completed") if item.tool_call]
        done = Counter(i.tool_call.arguments["q"] for i in calls if i.item_id in results and i.tool_call.name == "look")
        answered = sum(entry.answered is not None for entry in turns.entries(turn))
        forget_all()
        if not died:
            break
        await turns.take_over()
        assert turns.store.types(turn)[-1] == "turn.completed", (count, turns.end(turn))
        assert turns.output(turn) == output
        assert Counter(ran) == everything - done, f"died behind command {count}"
        ended = turns.ended_before(turn)
        assert requests() == (0 if ended else all_requests - answered), f"died behind command {count}"
        finals = [one.item_id for one in turns.store.data(turn, "tool_result.snapshot") if one.final]
        assert len(finals) == len(set(finals))
    assert count > stride


@pytest.mark.parametrize("twice", [False, True])
async def test_a_tool_that_may_have_run_and_may_not_run_again_ends_the_turn(twice: bool) -> None:
    """With a second death in the attempt that took over, too."""
    output, _, _ = await whole(careful)
    died, count, unknown = True, -1, 0
    while died:
        count += 1
        forget_all()
        turns = Turns(careful)
        executor = await turns.begin()
        died = await turns.die_after(executor, count)
        turn = executor.claim.turn_id
        if died and twice:
            again = await turns.try_claim()
            if again is not None:
                await turns.die_after(again, 1)
        if died:
            await turns.take_over()
        assert all(times == 1 for times in Counter(ran).values()), ran
        end = turns.end(turn)
        if end.type == "turn.failed":
            assert end.error.code == "outcome_unknown"
            unknown += 1
        else:
            assert turns.output(turn) == output
            assert sorted(ran) == ["a", "b"]
    assert unknown >= 2


async def test_a_workflow_goes_on_inside_itself_where_all_that_started_may_run_again() -> None:
    output, all_requests, everything = await whole(flow)
    assert sorted(everything.elements()) == sorted(ORDER)
    died, count = True, -1
    while died:
        count += 1
        turns = Turns(flow)
        executor = await turns.begin()
        died = await turns.die_after(executor, count)
        turn = executor.claim.turn_id
        if not died:
            break
        answered = sum(entry.answered is not None for entry in turns.entries(turn))
        forget_all()
        await turns.take_over()
        assert turns.store.types(turn)[-1] == "turn.completed", (count, turns.end(turn))
        assert turns.output(turn) == output
        assert requests() == (0 if turns.ended_before(turn) else all_requests - answered)
        assert Counter(ran) - everything == Counter()
        assert turns.named(turn).count("StepStarted") == len(ORDER), "each start is told once"
    assert count > 3


async def test_a_workflow_with_a_started_step_that_may_not_run_again_ends() -> None:
    died, count, ends = True, -1, []
    while died:
        count += 1
        forget_all()
        turns = Turns(lambda: _flow(again=False))
        executor = await turns.begin()
        died = await turns.die_after(executor, count)
        turn = executor.claim.turn_id
        entries = turns.entries(turn)
        inside = "StepStarted" in turns.named(turn) and entries[-1].ended is None
        if died:
            await turns.take_over()
        end = turns.end(turn)
        ends.append(end.type)
        assert (end.type == "turn.failed") == (died and inside), (count, end)
        if end.type == "turn.failed":
            assert end.error.code == "outcome_unknown"
        assert Counter(ran) - Counter(ORDER) == Counter(), "nothing ran twice"
    assert ends.count("turn.failed") > 5


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_pause_of_a_member_holds_whatever_dies_before_or_after_it(when: str, stride: int) -> None:
    """Two levels down. Another process asks the same, and goes on; what ran before does not run again after it."""

    def make() -> Team:
        says = [("look", {"q": "first"})], [("guarded", {"q": "x"}), ("look", {"q": "side"})], "leaf done"
        leaf = Agent(id="leaf", name="leaf", role="r", model=script("leaf", *says), tools=[look, _guarded()])
        says_inner = script("inner", [_to("leaf")], "inner done")
        inner = Team(id="inner", name="inner", role="i", model=says_inner, members=[leaf])
        return Team(id="top", model=script("top", [_to("inner")], "all done"), members=[inner])

    died, count = True, -1
    while died:
        count += stride
        forget_all()
        turns = Turns(make)
        if when == "before":
            executor = await turns.begin()
            turn = executor.claim.turn_id
            died = await turns.die_after(executor, count)
            finals = {one.item_id for one in turns.store.data(turn, "tool_result.snapshot") if one.final}
            calls = [item for item in turns.store.data(turn, "item.completed") if item.tool_call]
            recorded = sorted(i.tool_call.arguments["q"] for i in calls if i.item_id in finals)
            asked_before = sum(entry.answered is not None for entry in turns.entries(turn))
            if died:
                forget_all()
                await turns.take_over()
                assert sorted([*ran, *recorded]) == ["first", "side"]
                assert requests() == 4 - asked_before
        else:
            turn = await turns.run()
        assert turns.store.types(turn)[-1] == "turn.paused", turns.end(turn)
        (asked,) = turns.asks(turn)
        assert (asked.tool_name, asked.arguments) == ("guarded", {"q": "x"})
        forget_all()
        await turns.give(turn, {asked.tool_call_id: yes()})
        executor = turns.fresh(await turns.claim())
        if when == "after":
            died = await turns.die_after(executor, count)
            if died:
                await turns.take_over()
        else:
            await executor.run()
        if turns.store.types(turn)[-1] == "turn.failed":
            assert turns.end(turn).error.code == "outcome_unknown"
            assert ran == ["guarded x"]
            continue
        assert turns.store.types(turn)[-1] == "turn.completed", (count, turns.end(turn))
        assert turns.output(turn).strip() == "all done"
        assert ran == ["guarded x"]
        for leader, member in (("inner", "leaf"), ("top", "inner")):
            assert f"[{member}]: {member} done" in scripts[leader].asked[-1][-1][1], "who delegates gets the answer"
        assert not any(failed for _, failed in turns.results(turn))
    assert count > stride


def _guarded() -> Any:
    from agno.tools import tool

    @tool(requires_confirmation=True)
    def guarded(q: str) -> str:
        """Asks first."""
        ran.append(f"guarded {q}")
        return f"did {q}"

    return guarded
