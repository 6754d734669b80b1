"""Implements `domain.runtime.Runtime` for Agno's components."""

import logging
import os
from collections.abc import AsyncGenerator
from typing import Any

from domain.frames import RuntimeFrame
from domain.runtime import Capabilities, Execution
from services.paths import UnloadableObject
from services.worker.runtimes.agno.copies import kind_of, parts, warn_of_stores
from services.worker.runtimes.agno.details import details
from services.worker.runtimes.agno.files import Files
from services.worker.runtimes.agno.hooks import AgnoHooks
from services.worker.runtimes.agno.loop import AgnoLoop
from services.worker.runtimes.agno.store import Kind
from services.worker.runtimes.outlet import Outlet

# Its log lines quote prompts, answers and providers' errors.
for _name in ("agno", "agno-team", "agno-workflow"):
    logging.getLogger(_name).disabled = True
os.environ.setdefault("AGNO_TELEMETRY", "false")


class AgnoRuntime:
    """Each execution runs a copy of the component, with a store of its own in place of the user's."""

    capabilities = Capabilities(can_pause=True, can_resume=True)

    def __init__(self, component: Any, agent_id: str, *, hooks_in_background: bool = False) -> None:
        """Raises UnloadableObject for what runs elsewhere."""
        kind = kind_of(component)
        for part in parts(component):
            if "remote" in type(part).__module__.split("."):
                raise UnloadableObject(
                    f"`{agent_id}` has a {type(part).__name__}: remote components keep their runs elsewhere; "
                    "serve the agent itself"
                )
        assert kind is not None
        self.component: Kind = kind
        self.details = details(component, kind, agent_id)
        self._hooks = AgnoHooks(component, kind, in_background=hooks_in_background)
        self.hooks = self._hooks.declared
        self._component = component
        self._agent_id = agent_id
        warn_of_stores(component)

    def execute(self, execution: Execution) -> AsyncGenerator[RuntimeFrame, None]:
        async def run(outlet: Outlet) -> None:
            files = Files(execution.attachments)
            media = await files.media(execution)
            filled = await files.filled(execution)
            await AgnoLoop(self._component, self.component, filled, outlet, self._hooks, media).run()

        return Outlet().stream(run)
