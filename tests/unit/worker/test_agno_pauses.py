"""Pauses of Agno agents, teams and workflows: what they ask, and how they go on in another process."""

from typing import Any

import pytest
from agno.agent import Agent
from agno.team import Team, TeamMode
from agno.tools import tool
from agno.workflow import Condition, HumanReview, Loop, Router, Step, StepInput, StepOutput, Steps, Workflow

from domain.parts import Answer
from tests.support.agno_script import Script
from tests.support.agno_turns import Turns, folded, no, yes

ran: list[str] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    ran.clear()


def _noted(text: str) -> str:
    ran.append(text)
    return f"did {text}"


@tool
def plain(q: str) -> str:
    """Asks nobody."""
    return _noted(f"plain {q}")


@tool(requires_confirmation=True)
def act(q: str) -> str:
    """Asks first."""
    return _noted(f"act {q}")


@tool(requires_user_input=True, user_input_fields=["colour"])
def paint(wall: str, colour: str) -> str:
    """Asks for the colour."""
    return _noted(f"{wall} {colour}")


@tool(external_execution=True)
def ring(who: str) -> str:
    """Runs elsewhere."""
    raise AssertionError("runs elsewhere")


TOOLS: list[Any] = [plain, act, paint, ring]


def agent(name: str, *says: Any, repeats: bool = False) -> Agent:
    return Agent(id=name, name=name, role="r", model=Script(id=name, says=says, repeats=repeats), tools=TOOLS)


def by_tool(turns: Turns, turn: str) -> dict[str, Any]:
    return {asked.tool_name: asked for asked in turns.asks(turn)}


async def test_an_agent_asks_for_approval_values_and_results_at_once() -> None:
    batch = [("act", {"q": "a"}), ("paint", {"wall": "w"}), ("ring", {"who": "Ann"}), ("plain", {"q": "p"})]
    made: list[Agent] = []

    def make() -> Agent:
        made.append(agent("one", batch, "done", repeats=True))
        return made[-1]

    turns = Turns(make)
    turn = await turns.run()
    asked = by_tool(turns, turn)
    assert {name: one.kind for name, one in asked.items()} == {"act": "approval", "paint": "input", "ring": "external"}
    assert ran == ["plain p"], "what asks nobody need not wait"
    needs = {i.tool_call.name: i.tool_call.needs for i in turns.store.data(turn, "item.completed") if i.tool_call}
    assert needs == {"act": "approval", "paint": "input", "ring": "external", "plain": None}
    await turns.answer(
        turn,
        {
            asked["act"].tool_call_id: yes(),
            asked["paint"].tool_call_id: Answer(arguments={"colour": "red"}),
            asked["ring"].tool_call_id: Answer(result="says yes"),
        },
    )
    assert turns.output(turn).strip() == "done"
    assert sorted(ran) == ["act a", "plain p", "w red"]
    model = made[-1].model
    assert isinstance(model, Script)
    told = sorted(text for role, text in model.asked[-1] if role == "tool")
    assert told == ["did act a", "did plain p", "did w red", "says yes"]
    assert sorted(text for text, _ in turns.results(turn)) == told


async def test_what_is_refused_never_runs_and_the_model_is_told_why() -> None:
    made: list[Agent] = []

    def make() -> Agent:
        made.append(agent("one", [("act", {"q": "a"})], [("act", {"q": "b"})], "done", repeats=True))
        return made[-1]

    turns = Turns(make)
    turn = await turns.run()
    await turns.answer(turn, {turns.asks(turn)[0].tool_call_id: no("too far")})
    (again,) = turns.asks(turn)
    assert again.arguments == {"q": "b"}, "a second pause, under the same id of its provider"
    await turns.answer(turn, {again.tool_call_id: yes(arguments={"q": "changed"})})
    assert turns.output(turn).strip() == "done"
    assert ran == ["act changed"], "people may change what they approve"
    assert [text for text, _ in turns.results(turn)] == ["too far", "did act changed"]


@pytest.mark.parametrize("repeats", [False, True])
async def test_two_members_ask_at_once(repeats: bool) -> None:
    """Their providers may give both calls one id; each gets its own answer."""

    def make() -> Team:
        members: list[Any] = [
            agent(name, [("act", {"q": name})], f"{name} done", repeats=repeats) for name in ("left", "right")
        ]
        says = [("delegate_task_to_members", {"task": "t"})], "both done"
        return Team(id="choir", model=Script(says=says), members=members, mode=TeamMode.broadcast)

    turns = Turns(make)
    turn = await turns.run()
    asked = {one.arguments["q"]: one for one in turns.asks(turn)}
    assert set(asked) == {"left", "right"}
    assert {one.fields[-1]["agentos"]["member_agent_id"] for one in asked.values()} == {"left", "right"}
    assert len({one.tool_call_id for one in asked.values()}) == 2
    await turns.answer(turn, {asked["left"].tool_call_id: no("not you"), asked["right"].tool_call_id: yes()})
    assert turns.output(turn).strip() == "both done"
    assert ran == ["act right"]
    assert ("not you", False) in turns.results(turn) or ("not you", True) in turns.results(turn)


async def test_a_team_asks_for_its_own_tool_beside_a_members() -> None:
    def make() -> Team:
        says = [("act", {"q": "own"}), ("delegate_task_to_member", {"member_id": "m", "task": "t"})], "all done"
        members: list[Any] = [agent("m", [("act", {"q": "member"})], "m done")]
        return Team(id="crew", model=Script(says=says), members=members, tools=TOOLS)

    turns = Turns(make)
    turn = await turns.run()
    while turns.store.types(turn)[-1] == "turn.paused":
        await turns.answer(turn, {one.tool_call_id: yes() for one in turns.asks(turn)})
    assert turns.output(turn).strip() == "all done"
    assert sorted(ran) == ["act member", "act own"]


async def test_a_routed_member_asks() -> None:
    def make() -> Team:
        says = ([("delegate_task_to_member", {"member_id": "m", "task": "t"})], "passed on")
        members: list[Any] = [agent("m", [("act", {"q": "x"})], "m done")]
        return Team(id="router", model=Script(says=says), members=members, mode=TeamMode.route)

    turns = Turns(make)
    turn = await turns.run()
    (asked,) = turns.asks(turn)
    await turns.answer(turn, {asked.tool_call_id: yes()})
    assert turns.store.types(turn)[-1] == "turn.completed"
    assert ran == ["act x"]


def _step(name: str, **review: Any) -> Step:
    def step(step_input: StepInput) -> StepOutput:
        ran.append(name)
        extra = (step_input.additional_data or {}).get("user_input") or ""
        return StepOutput(content=f"{name} after {step_input.previous_step_content or step_input.input}{extra}")

    step.__name__ = name
    return Step(name=name, executor=step, human_review=HumanReview(**review) if review else None)


def _by_name(step_input: StepInput) -> Any:
    return ["in1"]


_in1: Any = _by_name
CONFIRM: dict[str, Any] = {"requires_confirmation": True, "confirmation_message": "Go on?"}

FLOWS: dict[str, Any] = {
    "step": lambda **review: [_step("one"), _step("two", **review), _step("last")],
    "steps": lambda **review: [
        _step("one"),
        Steps(name="two", steps=[_step("in1"), _step("in2")], human_review=HumanReview(**review)),
        _step("last"),
    ],
    "loop": lambda **review: [
        _step("one"),
        Loop(name="two", steps=[_step("in1")], max_iterations=2, human_review=HumanReview(**review)),
        _step("last"),
    ],
    "condition": lambda **review: [
        _step("one"),
        Condition(name="two", evaluator=True, steps=[_step("in1")], human_review=HumanReview(**review)),
        _step("last"),
    ],
    "router": lambda **review: [
        _step("one"),
        Router(
            name="two", selector=_in1, choices=[_step("in1"), _step("in2")],
            human_review=HumanReview(**review),
        ),
        _step("last"),
    ],
}  # fmt: skip
INSIDE = {
    "step": ["two"],
    "steps": ["in1", "in2"],
    "loop": ["in1", "in1"],
    "condition": ["in1"],
    "router": ["in1"],
}


@pytest.mark.parametrize("decision", ["approve", "skip", "cancel"])
@pytest.mark.parametrize("kind", FLOWS)
async def test_a_step_of_each_kind_asks_and_goes_on_as_it_is_told(kind: str, decision: str) -> None:
    review = {**CONFIRM, "on_reject": "cancel" if decision == "cancel" else "skip"}
    turns = Turns(lambda: Workflow(id="flow", name="Flow", steps=FLOWS[kind](**review)))
    turn = await turns.run()
    assert ran == ["one"]
    (asked,) = turns.asks(turn)
    assert (asked.kind, asked.tool_name) == ("approval", "two")
    assert asked.fields[-1]["agentos"]["step_requirement"]["confirmation_message"] == "Go on?"
    await turns.answer(turn, {asked.tool_call_id: yes() if decision == "approve" else no("no, thanks")})
    if decision == "cancel":
        assert turns.end(turn).type == "turn.interrupted", "as the original, which says CANCELLED"
        assert ran == ["one"]
        said = [item.text for item in turns.store.data(turn, "item.completed") if item.kind == "text"]
        assert said[-1] == "Workflow cancelled: Step 'two' was rejected"
        assert turns.entries(turn)[-1].ended == "stopped"
        shown = folded(turns.published, turn, "workflow")
        assert [event["event"] for event in shown[-2:]] == ["WorkflowCancelled", "WorkflowCompleted"]
        assert {event["content"] for event in shown[-2:]} == {said[-1]}
        return
    assert turns.end(turn).type == "turn.completed", turns.end(turn)
    assert ran == ["one", *(INSIDE[kind] if decision == "approve" else []), "last"]


async def test_a_step_asks_for_values() -> None:
    schema = [{"name": "colour", "field_type": "str", "description": "Which?"}]
    review = {"requires_user_input": True, "user_input_schema": schema}
    turns = Turns(lambda: Workflow(id="flow", name="Flow", steps=[_step("one", **review), _step("last")]))
    turn = await turns.run()
    (asked,) = turns.asks(turn)
    assert (asked.kind, asked.fields[0]["name"]) == ("input", "colour")
    await turns.answer(turn, {asked.tool_call_id: Answer(arguments={"colour": "red"})})
    assert "red" in turns.output(turn)
    assert ran == ["one", "last"]


async def test_people_choose_the_route() -> None:
    def make() -> Workflow:
        choices: list[Any] = [_step("in1"), _step("in2")]
        router = Router(name="which", choices=choices, human_review=HumanReview(requires_user_input=True))
        return Workflow(id="flow", name="Flow", steps=[router, _step("last")])

    turns = Turns(make)
    turn = await turns.run()
    (asked,) = turns.asks(turn)
    assert asked.fields[-1]["agentos"]["step_requirement"]["available_choices"] == ["in1", "in2"]
    await turns.answer(turn, {asked.tool_call_id: Answer(arguments={"selected_choices": ["in2"]})})
    assert turns.end(turn).type == "turn.completed", turns.end(turn)
    assert ran == ["in2", "last"]


async def test_people_review_what_a_step_has_said_and_may_change_it() -> None:
    review = {"requires_output_review": True}
    turns = Turns(lambda: Workflow(id="flow", name="Flow", steps=[_step("one", **review), _step("last")]))
    turn = await turns.run()
    (asked,) = turns.asks(turn)
    await turns.answer(turn, {asked.tool_call_id: Answer(approved=True, arguments={"edited_output": "by hand"})})
    assert turns.output(turn) == "last after by hand"
    assert ran == ["one", "last"]


async def test_people_review_each_round_of_a_loop() -> None:
    """Approved, the loop is done; rejected, it goes round once more."""

    def make() -> Workflow:
        review = HumanReview(requires_iteration_review=True, on_reject="retry")
        loop = Loop(name="loop", steps=[_step("in1")], max_iterations=3, human_review=review)
        return Workflow(id="flow", name="Flow", steps=[loop, _step("last")])

    turns = Turns(make)
    turn = await turns.run()
    (asked,) = turns.asks(turn)
    await turns.answer(turn, {asked.tool_call_id: no("once more")})
    assert ran == ["in1", "in1"]
    (asked,) = turns.asks(turn)
    await turns.answer(turn, {asked.tool_call_id: yes()})
    assert turns.end(turn).type == "turn.completed", turns.end(turn)
    assert ran == ["in1", "in1", "last"]


@pytest.mark.parametrize("again", [True, False])
async def test_a_step_that_fails_may_be_tried_again_or_left_out(again: bool) -> None:
    def failing(step_input: StepInput) -> StepOutput:
        ran.append("failing")
        if ran.count("failing") == 1:
            raise ValueError("hunter2-SECRET")
        return StepOutput(content="well")

    def make() -> Workflow:
        step = Step(name="failing", executor=failing, human_review=HumanReview(on_error="pause"), max_retries=0)
        return Workflow(id="flow", name="Flow", steps=[step, _step("last")])

    turns = Turns(make)
    turn = await turns.run()
    (asked,) = turns.asks(turn)
    assert asked.tool_name == "failing"
    await turns.answer(turn, {asked.tool_call_id: yes() if again else no()})
    assert turns.end(turn).type == "turn.completed", turns.end(turn)
    assert ran == (["failing", "failing", "last"] if again else ["failing", "last"])


async def test_the_agent_in_a_step_asks() -> None:
    def make() -> Workflow:
        asking = Step(name="asks", agent=agent("one", [("act", {"q": "x"}), ("plain", {"q": "p"})], "one done"))
        return Workflow(id="flow", name="Flow", steps=[_step("first"), asking, _step("last")])

    turns = Turns(make)
    turn = await turns.run()
    (asked,) = turns.asks(turn)
    assert (asked.kind, asked.tool_name, asked.arguments) == ("approval", "act", {"q": "x"})
    await turns.answer(turn, {asked.tool_call_id: yes()})
    assert turns.output(turn) == "last after one done "
    assert ran == ["first", "plain p", "act x", "last"]
