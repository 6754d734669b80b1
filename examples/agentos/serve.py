"""The agents of the lessons, as Agno's users define them. `turnlog up --agent id=serve:name` serves each.

Without a key they speak by the deterministic model of offline.py; EXAMPLES_MODEL=gpt-5-mini (and OPENAI_API_KEY) takes
a real one."""

import os
from typing import Any

from agno.agent import Agent
from agno.eval import AgentAsJudgeEval
from agno.hooks import hook
from agno.models.base import Model
from agno.tools import tool
from offline import Offline

from turnlog import hooked, unpack_archives


def model() -> Model:
    named = os.environ.get("EXAMPLES_MODEL")
    if named is None:
        return Offline()
    from agno.models.openai import OpenAIChat

    return OpenAIChat(id=named)


def get_city_fact(city: str) -> str:
    """A fact about a city."""
    return {"Paris": "Paris has 37 bridges.", "Kyoto": "Kyoto has 17 sites of world heritage."}.get(city, "Nothing.")


@tool(requires_confirmation=True)
def reserve_trip(destination: str) -> str:
    """Reserve a trip, once a person has said yes."""
    return f"A trip to {destination} is reserved."


# Lessons 1 to 4.

background = Agent(id="background-run-agent", name="In the background", model=model())
cancellable = Agent(id="cancellable-agent", name="To be stopped", model=model())
resumable = Agent(id="resumable-stream-agent", name="To be watched", model=model(), tools=[reserve_trip])
checked = Agent(
    id="checkpoint-agent", name="With checkpoints", model=model(), tools=[get_city_fact], checkpoint="tool-batch"
)


# Lesson 5. A hook that returns something has its result kept.


def note_request(run_input: Any) -> None:
    """A pre-hook."""


def measure_answer(run_output: Any) -> dict[str, int]:
    """A post-hook."""
    return {"words": len(str(run_output.content).split())}


@hook(run_in_background=True)
async def notify(run_output: Any) -> dict[str, str]:
    """A post-hook that never delays the answer."""
    return {"notified": run_output.run_id}


def judge(name: str, *, later: bool) -> AgentAsJudgeEval:
    """An agent that judges the answer."""
    return AgentAsJudgeEval(
        name=name, criteria="The answer is about what was asked.", model=model(), run_in_background=later
    )


all_later = hooked(
    Agent(
        id="global-hooks-agent",
        name="All hooks in the background",
        model=model(),
        pre_hooks=[note_request],
        post_hooks=[measure_answer],
    ),
    run_hooks_in_background=True,
)
some_later = Agent(
    id="mixed-hooks-agent",
    name="Some hooks in the background",
    model=model(),
    post_hooks=[measure_answer, judge("first judge", later=False), notify, judge("second judge", later=True)],
)


# Lesson 6. What a zip holds takes its place before the agent sees anything; a bomb or a damaged one is refused.

unpacked = hooked(Agent(id="archive-agent", name="Reader of archives", model=model()), pre=[unpack_archives])
