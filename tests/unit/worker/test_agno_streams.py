"""What AgentOS clients see of Agno's teams and workflows: cut anywhere and resumed, also behind a killed worker."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from agno.agent import Agent
from agno.team import Team, TeamMode
from agno.workflow import Loop, Parallel, Step, StepOutput, Workflow

from services.gateway.dialects.agentos.component import Kind
from services.gateway.dialects.agentos.fold import ATTEMPT_BASE
from tests.support.agno_script import Script
from tests.support.agno_turns import Turns, folded, yes
from turnlog import idempotent

Event = dict[str, Any]


@idempotent
async def look(q: str) -> str:
    """Look."""
    return f"saw {q}"


def _agent(name: str, *more: Any) -> Agent:
    says = (*more, [("look", {"q": name})], f"{name} has a lot to say")
    return Agent(id=name, name=name, role="looks", model=Script(id=name, says=says), tools=[look])


def _to(member: str) -> tuple[str, dict[str, Any]]:
    return "delegate_task_to_member", {"member_id": member, "task": "look"}


def team() -> Team:
    """Two members at once, one of them a team."""
    inner = Team(
        id="inner", name="inner", model=Script(says=([_to("leaf")], "inner is done")), members=[_agent("leaf")]
    )
    says = [_to("inner"), _to("right"), ("look", {"q": "own"})], "all of it is done"
    return Team(id="top", name="top", model=Script(says=says), members=[inner, _agent("right")], tools=[look])


def choir() -> Team:
    says = [("delegate_task_to_members", {"task": "look"})], "both have said it"
    members: list[Any] = [_agent("high"), _agent("low")]
    return Team(id="choir", name="choir", model=Script(says=says), members=members, mode=TeamMode.broadcast)


@idempotent
def shout(step_input: Any) -> StepOutput:
    """A step of one's own."""
    return StepOutput(content=str(step_input.previous_step_content or "").upper())


def flow() -> Workflow:
    """Agents side by side, then again and again, then one."""

    def step(name: str) -> Any:
        return idempotent(Step(name=name, agent=_agent(name)))

    return Workflow(
        id="flow",
        name="flow",
        steps=[
            Parallel(step("p1"), step("p2"), name="side"),
            Loop(name="loop", steps=[step("round")], max_iterations=2),
            Step(name="shout", executor=shout),
            step("last"),
        ],
    )


def _asks() -> Any:
    from agno.tools import tool

    @tool(requires_confirmation=True)
    def act(q: str) -> str:
        """Asks first."""
        return f"did {q}"

    return act


def asking() -> Team:
    """A member that asks in the middle."""
    says = ([("look", {"q": "1"})], [("act", {"q": "2"})], "the member is done")
    member = Agent(id="m", name="m", role="r", model=Script(says=says), tools=[look, _asks()])
    return Team(id="asking", name="asking", model=Script(says=([_to("m")], "all of it is done")), members=[member])


COMPONENTS: list[tuple[Kind, Callable[[], Any]]] = [
    ("team", team), ("team", choir), ("workflow", flow), ("team", asking)
]  # fmt: skip


def said(events: list[Event], kind: Kind) -> str:
    """As a client puts it together: of a workflow, what the agent of its last step said."""
    run = "my-run" if kind == "team" else [event["run_id"] for event in events if event["event"] == "RunContent"][-1]
    text = ""
    for event in events:
        if event["run_id"] == run and event["event"].endswith(("RunStarted", "RunContinued")):
            text = event.get("content", "" if event["event"].endswith("RunStarted") else text)
        elif event["event"].endswith("RunContent") and event["run_id"] == run:
            text += event["content"]
    return text


def jumps(indices: list[int]) -> list[int]:
    return [later for earlier, later in itertools.pairwise(indices) if later != earlier + 1]


def check(turns: Turns, turn: str, kind: Kind, deaths: int, stride: int = 1) -> list[Event]:
    """Returns the events as they are replayed."""
    whole = folded([one for one in turns.published if one[0] == "event"], turn, kind)
    indices = [event["event_index"] for event in whole]
    assert indices[0] == 0
    assert jumps(indices) in ([], [ATTEMPT_BASE]), "no gap but where an attempt died"
    assert len(jumps(indices)) <= deaths
    assert whole[-1]["event"] == {"team": "TeamRunCompleted", "workflow": "WorkflowCompleted"}[kind]
    assert said(whole, kind) == whole[-1]["content"]
    by_index = {event["event_index"]: event for event in whole}
    lost = 0
    for cut in range(1, len(turns.published) + 1, stride):
        seen = folded(turns.published[:cut], turn, kind)
        known = [event for event in seen if event["event_index"] in by_index]
        # What a dying attempt had shown and never stored is there for those only who watched.
        assert all(e["event"].endswith("RunContent") for e in seen if e["event_index"] not in by_index)
        lost += len(seen) - len(known)
        for event in known:
            if event != by_index[event["event_index"]]:
                assert event["event"].endswith("RunContent")
                assert by_index[event["event_index"]]["content"] == "", "a piece that died with its attempt"
        last = seen[-1]["event_index"] if seen else -1
        resumed = seen + [event for event in whole if event["event_index"] > last]
        numbers = [event["event_index"] for event in resumed]
        assert numbers == sorted(set(numbers)), "no repeat"
        assert jumps(numbers) in ([], [ATTEMPT_BASE]), "no gap"
        assert said(resumed, kind) == whole[-1]["content"]
    assert lost == 0 or deaths
    return whole


@pytest.mark.parametrize(("kind", "make"), COMPONENTS, ids=lambda one: getattr(one, "__name__", one))
async def test_cut_after_anything_that_is_published_and_resumed(kind: Kind, make: Callable[[], Any]) -> None:
    turns = Turns(make)
    turn = await turns.run()
    if make is asking:
        await turns.answer(turn, {turns.asks(turn)[0].tool_call_id: yes()})
    whole = check(turns, turn, kind, 0)
    names = [event["event"] for event in whole]
    assert names.count("RunStarted") == names.count("RunCompleted") or make is asking
    if make is flow:
        sides = [event["run_id"] for event in whole if event["event"] == "RunContent"]
        assert len(set(sides)) == 5, "p1, p2, two rounds and the last"
    assert len({event["event_index"] for event in whole}) == len(whole) > 20


@pytest.mark.parametrize("stride", [6, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize(("kind", "make"), COMPONENTS[:3], ids=lambda one: getattr(one, "__name__", one))
async def test_cut_and_resumed_where_the_worker_is_killed(kind: Kind, make: Callable[[], Any], stride: int) -> None:
    """Also between what runs side by side."""
    died, count, boundaries = True, 0, 0
    while died:
        turns = Turns(make)
        executor = await turns.begin()
        died = await turns.die_after(executor, count)
        if died:
            await turns.take_over()
        turn = executor.claim.turn_id
        whole = check(turns, turn, kind, 1, stride=7)
        boundaries += any(event["event_index"] >= ATTEMPT_BASE for event in whole)
        count += stride
    assert boundaries > 1
