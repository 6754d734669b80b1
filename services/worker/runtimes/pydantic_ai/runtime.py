"""Implements `domain.runtime.Runtime` for pydantic-ai agents."""

from collections.abc import AsyncGenerator
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models import Model

from domain.frames import RuntimeFrame
from domain.runtime import Capabilities, Execution
from services.worker.runtimes.outlet import Outlet
from services.worker.runtimes.pydantic_ai.loop import AgentLoop


class PydanticAIRuntime:
    """The agent is used as it is; `model` takes the place of its own where given."""

    capabilities = Capabilities(can_pause=True, can_resume=True)

    def __init__(self, agent: Agent[Any, Any], model: Model | None = None) -> None:
        self._agent = agent
        self._model = model

    def execute(self, execution: Execution) -> AsyncGenerator[RuntimeFrame, None]:
        return Outlet().stream(lambda outlet: AgentLoop(self._agent, self._model, execution, outlet).run())
