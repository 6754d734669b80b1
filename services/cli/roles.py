"""`turnlog gateway|agent|worker|projector`: one role in this process, until SIGTERM or Ctrl-C."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import uvloop
from cyclopts import Parameter

from infra.settings import Role, Settings, load, unknown_variables
from infra.telemetry.logging import configure
from services.cli.failures import say

Run = Callable[[Settings], Awaitable[int]]

# Variables of the command line itself, which are no settings.
_OURS = frozenset({"TURNLOG_URL", "TURNLOG_TOKEN"})


def gateway(*, host: str | None = None, port: int | None = None) -> int:
    """Run a gateway: public HTTP, auth, registrations, streams.

    Parameters
    ----------
    host
        Address to listen on (TURNLOG_GATEWAY_HOST).
    port
        Port to listen on (TURNLOG_GATEWAY_PORT).
    """
    return uvloop.run(_run("gateway", load(**given(gateway=given(host=host, port=port)))))


def agent(*, host: str | None = None, port: int | None = None) -> int:
    """Run an agent service: commands, queries and replay for gateways.

    Parameters
    ----------
    host
        Address to listen on (TURNLOG_AGENT_HOST).
    port
        Port to listen on (TURNLOG_AGENT_PORT).
    """
    return uvloop.run(_run("agent", load(**given(agent=given(host=host, port=port)))))


def worker(
    *,
    agents: Annotated[tuple[str, ...], Parameter(name="--agent", negative=())] = (),
    model: str | None = None,
) -> int:
    """Run a worker: claim and execute turns.

    Parameters
    ----------
    agents
        module:name, or id=module:name; may be repeated (TURNLOG_WORKER_AGENTS).
    model
        Model of the built-in agent, for example openai:gpt-5 (TURNLOG_WORKER_MODEL).
    """
    # The standard loop: this process runs other people's code, which may rely on it.
    return asyncio.run(_run("worker", load(**given(worker=given(agents=agents or None, model=model)))))


def projector(*, projections: Annotated[tuple[str, ...], Parameter(name="--projection", negative=())] = ()) -> int:
    """Run a projector: the relay, and feed projections.

    Parameters
    ----------
    projections
        One's own feed projection, module:Name; may be repeated (TURNLOG_PROJECTOR_PROJECTIONS).
    """
    return asyncio.run(_run("projector", load(**given(projector=given(projections=projections or None)))))


def given(**values: Any) -> dict[str, Any]:
    """What the command line said: the rest is left to variables, file and defaults."""
    return {name: value for name, value in values.items() if value not in (None, {})}


async def _run(role: Role, settings: Settings) -> int:
    configure(level=settings.log.level, format=settings.log.format, process={"role": role})
    for name in unknown_variables():
        if name not in _OURS:
            say(f"{name} is no setting of Turnlog's: see `turnlog config` for those that are")
    _name_process(f"turnlog {role}")
    run: Run = import_module(f"services.{role}.main").run
    return await run(settings)


def _name_process(name: str) -> None:
    # For `top` and `pgrep`; Linux only, and at most 15 characters of it.
    with suppress(OSError):
        Path("/proc/self/comm").write_text(name[:15])
