"""Agno objects that both servers serve: the original, and ours. Steered by markers in the message (fake_openai)."""

import asyncio
from typing import Any

from agno.agent import Agent
from agno.exceptions import InputCheckError
from agno.models.openai import OpenAIChat
from agno.team import Team
from agno.tools import tool
from agno.workflow import HumanReview, Step, StepOutput, Workflow

SERVED = [
    f"{name}=tests.acceptance.agentos.definitions:{name}"
    for name in ("plain", "tooled", "checked", "guarded", "dbless", "crew", "duo", "flow", "gated", "halting")
]


def _model() -> Any:
    return OpenAIChat(id="fake-model", max_retries=0)


# These two run on the loop of their run, so that which of a batch ends first is not left to threads.
@tool
async def value(name: str) -> str:
    """Value of something."""
    return f"value of {name}"


@tool
async def broken(name: str) -> str:
    """Fails."""
    raise ValueError("broken " + name)


@tool(requires_confirmation=True)
def act(what: str) -> str:
    """Acts."""
    return f"did {what}"


@tool(requires_user_input=True, user_input_fields=["place"])
def go(place: str, how: str) -> str:
    """Goes."""
    return f"went to {place} by {how}"


@tool(external_execution=True)
def outside(what: str) -> str:
    """Runs elsewhere."""
    return ""


def guard(run_input: Any) -> None:
    """Refuses some inputs."""
    if "forbidden" in str(run_input.input_content):
        raise InputCheckError("input refused")


plain = Agent(id="plain", name="Plain", model=_model())
tooled = Agent(id="tooled", name="Tooled", model=_model(), tools=[value, broken, act, go, outside])
checked = Agent(id="checked", name="Checked", model=_model(), tools=[value], checkpoint="tool-batch")
guarded = Agent(id="guarded", name="Guarded", model=_model(), pre_hooks=[guard])
dbless = Agent(id="dbless", name="Without a database", model=_model())
_member = Agent(id="member", name="Member", role="does things", model=_model(), tools=[value])
crew = Team(id="crew", name="Crew", model=_model(), members=[_member], tools=[value, act])
# Nobody listens where its model is asked.
_faulty = Agent(
    id="faulty", name="Faulty", role="fails", model=OpenAIChat(id="x", base_url="http://127.0.0.1:9/v1", max_retries=0)
)
duo = Team(
    id="duo",
    name="Duo",
    model=_model(),
    members=[
        *(Agent(id=name, name=name.title(), role="speaks", model=_model()) for name in ("left", "right")),
        _faulty,
    ],
)
flow = Workflow(id="flow", name="Flow", steps=[Step(name="one", agent=plain), Step(name="two", agent=plain)])
gated = Workflow(
    id="gated",
    name="Gated",
    steps=[
        Step(name="one", agent=plain),
        Step(
            name="two",
            agent=plain,
            human_review=HumanReview(requires_confirmation=True, confirmation_message="go on?"),
        ),
    ],
)


async def wait(step_input: Any) -> StepOutput:
    """Until somebody cancels the run."""
    await asyncio.sleep(120)
    return StepOutput(content="waited")


halting = Workflow(
    id="halting", name="Halting", steps=[Step(name="one", agent=plain), Step(name="wait", executor=wait)]
)
