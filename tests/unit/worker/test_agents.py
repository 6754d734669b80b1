"""Which objects a worker takes as agents, and what it says of others."""

import pytest
from pydantic_ai import Agent

from services.paths import UnloadableObject
from services.worker.agents import load_agents
from services.worker.runtimes.callable import CallableRuntime
from services.worker.runtimes.pydantic_ai import PydanticAIRuntime

plain = Agent(name="Plain")
named = Agent("openai:gpt-5", defer_model_check=True)
number = 42


async def not_a_generator(turn: object) -> None: ...


def test_no_words_mean_the_demonstration_agent() -> None:
    (agent,) = load_agents([])
    assert (agent.agent_id, agent.name) == ("demo", "demo")
    assert isinstance(agent.runtime, PydanticAIRuntime)


def test_functions_and_agents_are_recognised() -> None:
    echo, own, other = load_agents(["tests.support.agents:echo", "mine=tests.support.agents:echo", f"{__name__}:plain"])
    assert [agent.agent_id for agent in (echo, own, other)] == ["echo", "mine", "plain"]
    assert other.name == "Plain"
    assert isinstance(echo.runtime, CallableRuntime)
    assert isinstance(other.runtime, PydanticAIRuntime)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([f"{__name__}:number"], "is a int"),
        ([f"{__name__}:not_a_generator"], "is a function"),
        (["no_such_module:x"], "no module `no_such_module`"),
        (["tests.support.agents:nothing"], "has no `nothing`"),
        (["echo"], "not of the form module:name"),
        (["a b=tests.support.agents:echo"], "cannot be an agent's id"),
        (["tests.support.agents:echo", "echo=tests.support.agents:slow"], "two agents have the id `echo`"),
    ],
)
def test_what_cannot_be_loaded_is_told_in_one_line(words: list[str], said: str) -> None:
    with pytest.raises(UnloadableObject) as refused:
        load_agents(words)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_model_that_cannot_be_used_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    for words, model in (([f"{__name__}:named"], None), ([], "nobody:model")):
        with pytest.raises(UnloadableObject) as refused:
            load_agents(words, model)
        assert "cannot be used" in str(refused.value)
