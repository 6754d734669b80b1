"""Agno's own AgentOS over the same objects: `python -m tests.acceptance.agentos.reference PORT`."""

import sys
from typing import Any


def main() -> None:
    import uvicorn
    from agno.db import in_memory
    from agno.os import AgentOS

    from tests.acceptance.agentos import definitions as made

    db = in_memory.InMemoryDb()  # type: ignore[no-untyped-call]
    agents: list[Any] = [made.plain, made.tooled, made.checked, made.guarded]
    for component in (*agents, made.crew, made.duo, made.flow, made.gated, made.halting):
        component.db = db
    served = AgentOS(
        id="reference",
        name="Turnlog",
        agents=[*agents, made.dbless],
        teams=[made.crew, made.duo],
        workflows=[made.flow, made.gated, made.halting],
        telemetry=False,
    )
    uvicorn.run(served.get_app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="error")


if __name__ == "__main__":
    main()
