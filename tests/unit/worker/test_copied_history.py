"""What a model is told of the past in a copy of a session: the same as in its source, files included."""

from typing import Any

import pytest
from agno.agent import Agent as AgnoAgent
from agno.team import Team
from agno.workflow import Step, Workflow
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel

from domain.commands import CopyTurns
from domain.copying import Copyist
from domain.ids import CommandKey, Sequence
from services.worker.runtimes.agno import AgnoRuntime
from services.worker.runtimes.callable import CallableRuntime
from services.worker.runtimes.pydantic_ai import PydanticAIRuntime
from tests.support.collector import Collector
from tests.support.execution import Bench
from tests.support.shelf import Shelf
from tests.unit.worker.test_attachments import Watching, Words


async def copied(source: Bench) -> Bench:
    """Another session, with the turns that have ended."""
    made = Bench(source.runtime, attachments=source.attachments)
    made.store = Collector()
    await made.store.create()
    copyist = Copyist(source.store.session_id, made.store.session_id, "s", Sequence(2))
    events = source.store.events
    drafts = []
    for turn_id in dict.fromkeys(event.turn_id for event in events if event.turn_id is not None):
        drafts += copyist.copied([event for event in events if event.turn_id == turn_id], Sequence(len(events)))
    await made.store.execute(
        CopyTurns(
            session_id=made.store.session_id,
            key=CommandKey("copy"),
            source_session_id=source.store.session_id,
            first=2,
            events=drafts,
        )
    )
    return made


async def next_in_both(b: Bench, text: str = "and now") -> None:
    """A turn in the copy, then the same in the source."""
    copy = await copied(b)
    for one in (copy, b):
        turn = await one.turn(text)
        assert one.store.types(turn)[-1] == "turn.completed", one.store.data(turn, "turn.failed")


def make_agent(model: Any) -> Any:
    return AgnoAgent(id="x", model=model, add_history_to_context=True)


def make_team(model: Any) -> Any:
    member = AgnoAgent(id="m", name="m", role="does it", model=model)
    return Team(id="x", model=model, members=[member], add_history_to_context=True)


def make_workflow(model: Any) -> Any:
    return Workflow(id="x", steps=[Step(name="one", agent=make_agent(model))], add_workflow_history_to_steps=True)


@pytest.mark.parametrize("make", [make_agent, make_team, make_workflow])
async def test_an_agno_component_goes_on_as_in_the_source(make: Any) -> None:
    model, shelf = Watching("said"), Shelf()
    b = Bench(AgnoRuntime(make(model), "x"), attachments=shelf)
    await b.turn("first", shelf.put(b"\x89PNG", "a.png", "image/png"))
    await b.turn("second")
    del model.asked[:], model.media[:]
    await next_in_both(b)
    in_copy, in_source = model.asked
    assert in_copy == in_source
    assert model.media[0] == model.media[1]
    assert "first" in str(in_copy)
    assert in_copy[-1][1].endswith("and now")


async def test_a_pydantic_ai_agent_and_a_generator_go_on_as_in_the_source() -> None:
    words, shelf = Words(), Shelf()
    b = Bench(PydanticAIRuntime(Agent(FunctionModel(stream_function=words.stream))), attachments=shelf)
    await b.turn("first", shelf.put(b"\x89PNG", "a.png", "image/png"))
    await next_in_both(b)
    assert [[part.content for part in message.parts if hasattr(part, "content")] for message in words.asked[1]] == [
        [part.content for part in message.parts if hasattr(part, "content")] for message in words.asked[2]
    ]
    assert words.files(1) == words.files(2) != []
    told: list[Any] = []

    async def agent(turn: Any) -> Any:
        told.append([(message.role, message.text, message.files) for message in turn.history])
        yield "said"

    c = Bench(CallableRuntime(agent), attachments=shelf)
    await c.turn("first", shelf.put(b"x", "a.txt", "text/plain"))
    await next_in_both(c)
    assert told[1] == told[2]
    assert [role for role, _, _ in told[1]] == ["user", "assistant"]
