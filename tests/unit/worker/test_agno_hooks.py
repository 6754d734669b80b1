"""Agno's hooks, guardrails and evaluations: what runs in line and may refuse or rewrite, what follows as a job."""

import threading
from typing import Any

import pytest
from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.eval import AgentAsJudgeEval
from agno.eval.base import BaseEval
from agno.exceptions import CheckTrigger, InputCheckError, OutputCheckError
from agno.guardrails.base import BaseGuardrail
from agno.hooks import hook
from agno.run import RunContext
from agno.run.agent import RunInput
from agno.team import Team
from agno.workflow import Step, Workflow

from domain.ids import TurnId
from domain.parts import TextPart
from infra.postgres.hook_jobs import HookTry
from services.worker.hooks.hook import Hook
from services.worker.hooks.told import told
from services.worker.runtimes.agno.evaluations import EvaluationFailed
from tests.support.agno_script import Script
from tests.support.agno_turns import Turns, yes
from tests.support.execution import SECRET, assert_nowhere

seen: list[tuple[str, str]] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    seen.clear()


class NoSecrets(BaseGuardrail):
    """Counts what it was asked: its object is the user's, in every turn."""

    def __init__(self) -> None:
        self.asked = 0

    def check(self, run_input: Any) -> None:
        self.asked += 1
        seen.append(("guardrail", str(run_input.input_content)))
        if "secret" in str(run_input.input_content):
            raise InputCheckError("Keep it to yourself.", check_trigger=CheckTrigger.INPUT_NOT_ALLOWED)

    async def async_check(self, run_input: Any) -> None:
        self.check(run_input)


async def louder(run_input: RunInput) -> None:
    seen.append(("louder", str(run_input.input_content)))
    run_input.input_content = f"{run_input.input_content}!"


def note_input(run_input: RunInput, agent: Any) -> None:
    seen.append(("note_input", str(run_input.input_content)))


def note_output(run_output: Any) -> None:
    seen.append(("note_output", str(run_output.content)))


@hook(run_in_background=True)
async def audit(run_output: Any) -> dict[str, str]:
    seen.append(("audit", str(run_output.content)))
    return {"audited": str(run_output.content)}


def no_lies(run_output: Any) -> None:
    if "lie" in str(run_output.content):
        raise OutputCheckError("It would be a lie.", check_trigger=CheckTrigger.OUTPUT_NOT_ALLOWED)


def agent(says: Any = "well", **hooks: Any) -> Agent:
    return Agent(id="one", name="One", model=Script(says=(says,)), **hooks)


async def run_job(turns: Turns, turn: str, name: str) -> Any:
    """As any worker would: told by the log alone, by a runtime of its own."""
    (scheduled,) = [one for one in turns.store.data(turn, "hook.scheduled") if one.hook == name]
    found: Hook | None = turns.fresh_hooks().named(name)
    assert found is not None
    tried = HookTry(
        job_id=scheduled.job_id,
        session_id=turns.store.session_id,
        turn_id=TurnId(turn),
        agent_id="x",
        hook=name,
        attempts=1,
    )
    run = told(tried, await turns.store.turn_events(turns.store.session_id, TurnId(turn)), member=found.member)
    assert run is not None
    return await found.call(run)


async def test_hooks_in_line_run_in_order_and_the_rewritten_input_is_what_everybody_gets() -> None:
    model = Script(says=("well",))
    rail = NoSecrets()
    hooks: dict[str, Any] = {"pre_hooks": [note_input, rail, louder, rail], "post_hooks": [note_output]}
    turns = Turns(lambda: Agent(id="one", model=model, **hooks))
    turn = await turns.run("hi")
    assert seen == [
        ("note_input", "hi"), ("guardrail", "hi"), ("louder", "hi"), ("guardrail", "hi!"), ("note_output", "well "),
    ]  # fmt: skip
    assert model.asked[0][-1] == ("user", "hi!")
    (rewritten,) = turns.store.data(turn, "turn.input_rewritten")
    assert (rewritten.by, rewritten.input) == ("louder", [TextPart("hi!")])
    assert turns.store.types(turn).index("turn.input_rewritten") < turns.store.types(turn).index("item.completed")
    assert turns.entries(turn)[-1].transcript[0]["content"] == "hi!", "the history of later turns"
    assert rail.asked == 2, "the user's own object, so that one that counts counts on"


@pytest.mark.parametrize("where", ["alone", "before a rewriting hook", "in a team"])
async def test_a_guardrail_refuses_the_input_before_the_model_is_asked(where: str) -> None:
    model = Script(says=("well",))
    pre: list[Any] = [NoSecrets(), louder] if where.startswith("before") else [NoSecrets()]
    make: Any = Team if where == "in a team" else Agent
    more = {"members": [agent()]} if where == "in a team" else {}
    turns = Turns(lambda: make(id="x", model=model, pre_hooks=pre, **more), hooks_in_background=True)
    turn = await turns.run("a secret")
    error = turns.end(turn).error
    assert (error.code, error.message) == ("input_refused", "Keep it to yourself.")
    assert model.asked == [], "also where all hooks run in the background: guardrails do not"


async def test_a_guardrail_refuses_the_output() -> None:
    turns = Turns(lambda: agent("a lie", post_hooks=[no_lies, audit]))
    turn = await turns.run()
    error = turns.end(turn).error
    assert (error.code, error.message) == ("input_refused", "It would be a lie.")
    assert "hook.scheduled" not in turns.store.types(turn), "it follows turns that complete"


async def test_a_hook_that_fails_in_line_costs_nothing_but_itself() -> None:
    """As with Agno."""

    def broken(run_input: RunInput) -> None:
        raise RuntimeError(SECRET)

    def broken_after(run_output: Any) -> None:
        raise RuntimeError(SECRET)

    turns = Turns(lambda: agent(pre_hooks=[broken, louder], post_hooks=[broken_after, note_output]))
    turn = await turns.run("hi")
    assert turns.output(turn) == "well "
    assert seen == [("louder", "hi"), ("note_output", "well ")]
    assert_nowhere(turns.bench, SECRET)


async def test_a_hook_that_is_not_given_the_input_has_the_session_of_the_run() -> None:
    def remember(run_context: RunContext) -> None:
        assert run_context.session_state is not None
        run_context.session_state["seen"] = run_context.session_state.get("seen", 0) + 1

    turns = Turns(lambda: agent(pre_hooks=[remember, louder], session_state={"seen": 0}))
    await turns.run("hi")
    second = await turns.run("again")
    (state,) = [e.payload for e in turns.store.data(second, "runtime.event") if e.name == "SessionState"]
    assert state["seen"] == 2


@pytest.mark.parametrize(("everywhere", "later"), [(False, ["audit"]), (True, ["note_input", "audit", "note_output"])])
async def test_what_runs_in_the_background_is_scheduled_and_runs_in_any_process(
    everywhere: bool, later: list[str]
) -> None:
    hooks: dict[str, Any] = {"pre_hooks": [NoSecrets(), note_input], "post_hooks": [audit, note_output]}
    turns = Turns(lambda: agent(**hooks), hooks_in_background=everywhere)
    turn = await turns.run("hi")
    in_line = (
        [("guardrail", "hi")] if everywhere else [("guardrail", "hi"), ("note_input", "hi"), ("note_output", "well ")]
    )
    assert seen == in_line, "mixed: each hook for itself"
    assert [job.hook for job in turns.store.data(turn, "hook.scheduled")] == later == turns.bench.told
    assert turns.store.types(turn)[-len(later) - 1 :] == ["turn.completed", *["hook.scheduled"] * len(later)]
    seen.clear()
    assert await run_job(turns, turn, "audit") == {"audited": "well "}
    assert seen == [("audit", "well ")]


async def test_plain_hooks_block_no_loop() -> None:
    threads: list[Any] = []

    @hook(run_in_background=True)
    def blocking(run_output: Any) -> None:
        threads.append(threading.current_thread())

    turns = Turns(lambda: agent(post_hooks=[blocking]))
    turn = await turns.run()
    await run_job(turns, turn, "blocking")
    assert threads != [threading.main_thread()]


async def test_background_hooks_of_members_and_steps_follow_the_turn_with_what_their_agent_said() -> None:
    def sayer(name: str) -> Agent:
        return Agent(id=name, name=name, role="r", model=Script(id=name, says=(f"{name} said",)), post_hooks=[audit])

    flow = Turns(
        lambda: Workflow(id="f", name="F", steps=[Step(name="s", agent=sayer("a")), Step(name="t", agent=sayer("b"))])
    )
    turn = await flow.run()
    assert seen == [], "they never delay the answer"
    assert [job.hook for job in flow.store.data(turn, "hook.scheduled")] == ["audit", "audit_2"]
    assert await run_job(flow, turn, "audit") == {"audited": "a said "}
    assert await run_job(flow, turn, "audit_2") == {"audited": "b said "}

    says = ([("delegate_task_to_member", {"member_id": "b", "task": "t"})], "done")
    team = Turns(lambda: Team(id="t", model=Script(says=says), members=[sayer("a"), sayer("b")]))
    turn = await team.run()
    seen.clear()
    assert await run_job(team, turn, "audit") is None, "nobody called it, so nobody is told"
    assert seen == []
    assert await run_job(team, turn, "audit_2") == {"audited": "b said "}


async def test_hooks_in_line_of_members_run_where_the_member_runs() -> None:
    member = Agent(
        id="m", name="m", role="r", model=Script(says=("m said",)), pre_hooks=[louder], post_hooks=[note_output]
    )
    says = ([("delegate_task_to_member", {"member_id": "m", "task": "do it"})], "done")
    turns = Turns(lambda: Team(id="t", model=Script(says=says), members=[member], pre_hooks=[note_team]))
    turn = await turns.run("hi")
    assert seen == [("note_team", "hi"), ("louder", "do it"), ("note_output", "m said ")]
    assert "turn.input_rewritten" not in turns.store.types(turn), "that is the turn's own"


def note_team(run_input: Any, team: Any) -> None:
    seen.append(("note_team", str(run_input.input_content)))


JUDGED = '{"score": 8, "reason": "fine"}'


def judge(verdict: str = JUDGED, **options: Any) -> AgentAsJudgeEval:
    model = Script(id="judge", says=(verdict,))
    return AgentAsJudgeEval(
        name="quality",
        criteria="Be kind.",
        scoring_strategy="numeric",
        threshold=7,
        model=model,
        telemetry=False,
        **options,
    )


@pytest.mark.parametrize("later", [False, True])
async def test_a_judges_verdict_is_the_result_of_an_evaluation(later: bool) -> None:
    db = InMemoryDb()  # type: ignore[no-untyped-call]
    evaluation = judge(run_in_background=later, db=db)
    turns = Turns(lambda: agent("well", post_hooks=[evaluation, note_output]))
    turn = await turns.run("hi")
    (scheduled,) = turns.store.data(turn, "hook.scheduled")
    assert (scheduled.hook, scheduled.kind) == ("quality", "evaluation")
    if later:
        assert "hook.completed" not in turns.store.types(turn)
        result = await run_job(turns, turn, "quality")
    else:
        assert turns.store.types(turn)[-3:] == ["turn.completed", "hook.scheduled", "hook.completed"]
        result = turns.store.data(turn, "hook.completed")[0].result
    (one,) = result["results"]
    assert (one["score"], one["passed"], one["reason"], one["input"], one["output"]) == (8, True, "fine", "hi", "well ")
    assert result["avg_score"] == 8.0
    assert evaluation.db is db, "the user's object is as it was"
    assert db.get_eval_runs() == [], "nothing is written elsewhere"


@pytest.mark.parametrize("later", [False, True])
async def test_a_judge_that_fails_is_asked_again_where_nobody_waits(later: bool) -> None:
    turns = Turns(lambda: agent("well", post_hooks=[judge("no verdict", run_in_background=later)]))
    turn = await turns.run("hi")
    assert turns.output(turn) == "well "
    if later:
        with pytest.raises(EvaluationFailed):  # and tried again
            await run_job(turns, turn, "quality")
    else:
        assert turns.store.data(turn, "hook.completed")[0].result == {"error": "EvaluationFailed"}


class Length(BaseEval):
    """An evaluation of one's own."""

    def pre_check(self, run_input: Any) -> None: ...

    async def async_pre_check(self, run_input: Any) -> None: ...

    def post_check(self, run_output: Any) -> None: ...

    async def async_post_check(self, run_output: Any) -> Any:
        return {"length": len(str(run_output.content))}


async def test_an_evaluation_of_ones_own() -> None:
    turns = Turns(lambda: agent("well", post_hooks=[Length()]))
    turn = await turns.run("hi")
    assert turns.store.data(turn, "hook.completed")[0].result == {"length": 5}


async def test_the_rewritten_input_is_used_by_recovery_and_not_rewritten_again() -> None:
    model = Script(says=("well",))
    died, count = True, -1
    while died:
        count += 1
        model.asked.clear()
        turns = Turns(lambda: Agent(id="one", model=model, pre_hooks=[louder]))
        executor = await turns.begin("hi")
        died = await turns.die_after(executor, count)
        if died:
            await turns.take_over()
        turn = executor.claim.turn_id
        assert turns.output(turn) == "well "
        assert {asked[-1] for asked in model.asked} == {("user", "hi!")}
        assert len(turns.store.data(turn, "turn.input_rewritten")) == 1
    assert count >= 2


async def test_after_a_pause_no_pre_hook_runs_again() -> None:
    from agno.tools import tool

    @tool(requires_confirmation=True)
    def act(q: str) -> str:
        """Asks."""
        return q

    def make() -> Agent:
        model = Script(says=([("act", {"q": "x"})], "done"))
        return Agent(id="one", model=model, tools=[act], pre_hooks=[louder, NoSecrets()], post_hooks=[note_output])

    turns = Turns(make)
    turn = await turns.run("hi")
    assert seen == [("louder", "hi"), ("guardrail", "hi!")]
    seen.clear()
    await turns.answer(turn, {turns.asks(turn)[0].tool_call_id: yes()})
    assert turns.output(turn) == "done "
    assert seen == [("note_output", "done ")]
