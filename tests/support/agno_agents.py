"""Agno components for tests, defined as their users define them, on a model of the OpenAI wire.

`AGNO_NOTES` names a directory in which tools note that they run, find the address of the database (`dsn`) and wait for
the file `go`."""

import os
from pathlib import Path
from typing import Any

import asyncpg
from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.eval import AgentAsJudgeEval
from agno.exceptions import CheckTrigger, InputCheckError
from agno.models.openai import OpenAIChat
from agno.run import RunContext
from agno.run.agent import RunInput
from agno.team import Team, TeamMode
from agno.tools import tool
from agno.workflow import HumanReview, Step, StepInput, StepOutput, Workflow

from tests.support.lifecycle_agents import note, until_exists
from turnlog import idempotent

AGENTS = ("plain", "keeper", "pair", "choir", "line", "sure", "careful", "walkers", "judged")

STARTED = """
SELECT count(*) FROM events AS s
JOIN events AS c ON c.session_id = s.session_id AND c.payload ->> 'item_id' = s.payload ->> 'item_id'
WHERE s.type = 'tool.started' AND c.type = 'item.completed' AND c.payload #>> '{tool_call,arguments,city}' = $1
"""


def notes() -> Path:
    return Path(os.environ["AGNO_NOTES"])


async def started(city: str) -> int:
    """How many starts of a call for that city the database holds."""
    connection = await asyncpg.connect((notes() / "dsn").read_text())
    try:
        return int(await connection.fetchval(STARTED, city))
    finally:
        await connection.close()


def model() -> OpenAIChat:
    # The key and the address come from the environment.
    return OpenAIChat(id="fake-1")


async def get_city_fact(city: str) -> str:
    """A fact about a city."""
    note(notes(), "facts", f"{city} {await started(city)}")
    return f"{city} is old"


@idempotent
async def visit(city: str) -> str:
    """Go there. It takes until the file `go` exists, but for Paris."""
    note(notes(), "visits", city)
    if city != "Paris":
        await until_exists(notes() / "go")
    return f"saw {city}"


@tool(requires_confirmation=True)
def reserve_trip(destination: str) -> str:
    """Reserve a trip."""
    note(notes(), "trips", destination)
    return f"reserved {destination}"


@tool(requires_user_input=True, user_input_fields=["colour"])
def paint(wall: str, colour: str) -> str:
    """Paint a wall."""
    return f"{wall} is {colour}"


@tool(external_execution=True)
def ring(who: str) -> str:
    """Ring somebody up."""
    raise AssertionError("runs elsewhere")


def remember(word: str, run_context: RunContext) -> str:
    """Keep a word in the session's state."""
    state = run_context.session_state or {}
    state["words"] = [*state.get("words", []), word]
    return f"kept {len(state['words'])}"


plain = Agent(
    id="plain",
    name="Plain",
    model=model(),
    tools=[get_city_fact, visit, reserve_trip, paint, ring],
    add_history_to_context=True,
    instructions="Be brief. MARKER-7c1e-of-instructions",
)
keeper = Agent(
    id="keeper",
    name="Keeper",
    model=model(),
    tools=[remember],
    session_state={"words": []},
    db=InMemoryDb(),  # type: ignore[no-untyped-call]
)


def _member(name: str) -> Agent:
    return Agent(id=name, name=name.title(), role="Knows cities", model=model(), tools=[get_city_fact, reserve_trip])


pair = Team(id="pair", name="Pair", model=model(), members=[_member("left"), _member("right")])
choir = Team(
    id="choir", name="Choir", model=model(), members=[_member("high"), _member("low")], mode=TeamMode.broadcast
)


@tool(name="get_city_fact")
@idempotent
async def seek(city: str) -> str:
    """A fact that must be looked for there."""
    return await visit(city)


def _walker(name: str) -> Agent:
    return Agent(id=name, name=name.title(), role="Visits cities", model=model(), tools=[seek])


walkers = Team(
    id="walkers", name="Walkers", model=model(), members=[_walker("ann"), _walker("bob")], mode=TeamMode.broadcast
)


def _judge(name: str, **options: Any) -> AgentAsJudgeEval:
    return AgentAsJudgeEval(
        name=name, criteria="Be kind.", scoring_strategy="numeric", model=model(), telemetry=False, **options
    )


judged = Agent(
    id="judged", name="Judged", model=model(), post_hooks=[_judge("at_once"), _judge("later", run_in_background=True)]
)


def shout(step_input: StepInput) -> StepOutput:
    """A step of one's own."""
    return StepOutput(content=str(step_input.previous_step_content or step_input.input).upper())


async def linger(step_input: StepInput) -> StepOutput:
    """Not declared idempotent: it may run once."""
    note(notes(), "lingered")
    await until_exists(notes() / "go")
    return StepOutput(content="lingered")


@idempotent
async def linger_surely(step_input: StepInput) -> StepOutput:
    """May run again."""
    note(notes(), "surely")
    await until_exists(notes() / "go")
    return StepOutput(content=f"surely {step_input.previous_step_content}")


line = Workflow(
    id="line",
    name="Line",
    steps=[
        Step(name="say", agent=Agent(id="sayer", name="Sayer", model=model(), tools=[reserve_trip])),
        Step(
            name="shout",
            executor=shout,
            human_review=HumanReview(requires_confirmation=True, confirmation_message="Shout it?"),
        ),
    ],
)
sure = Workflow(
    id="sure",
    name="Sure",
    steps=[
        idempotent(Step(name="say", agent=Agent(id="sayer", name="Sayer", model=model()))),
        Step(name="linger", executor=linger_surely),
    ],
)
careful = Workflow(id="careful", name="Careful", steps=[Step(name="linger", executor=linger)])


def no_secrets(run_input: RunInput) -> None:
    """A guardrail."""
    if "secret" in str(run_input.input_content):
        raise InputCheckError("Keep it to yourself.", check_trigger=CheckTrigger.INPUT_NOT_ALLOWED)


guarded = Agent(id="guarded", name="Guarded", model=model(), pre_hooks=[no_secrets])
SERVED = [f"{name}=tests.support.agno_agents:{name}" for name in (*AGENTS, "guarded")]
