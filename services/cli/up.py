"""`turnlog up`: everything on this machine, from an empty directory to a URL."""

import asyncio
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from infra.embedded.place import free_port
from infra.settings import Settings, load
from services.cli.child import ChildSpec
from services.cli.failures import COULD_NOT_RUN, FINE, CannotRun
from services.cli.installation import Installation
from services.cli.invitation import invite
from services.cli.roles import given
from services.cli.site import Site
from services.cli.supervisor import PrefixedLog, Supervisor
from services.paths import require_module

Count = Annotated[int, Parameter(validator=validators.Number(gte=1))]

# Longer than any drain of a role; whoever is still there then is killed.
_PATIENCE_MARGIN_SECONDS = 5.0


def up(
    *,
    agent: Annotated[tuple[str, ...], Parameter(name="--agent")] = (),
    model: str | None = None,
    projection: Annotated[tuple[str, ...], Parameter(name="--projection")] = (),
    gateways: Count = 1,
    agents: Count = 1,
    workers: Count = 1,
    data: Path | None = None,
    port: Annotated[int | None, Parameter(validator=validators.Number(gte=1, lte=65535))] = None,
) -> int:
    """Start PostgreSQL, NATS and the four roles on this machine, and keep them running until Ctrl-C.

    The first start makes the data directory; a later one, also after a crash, goes on with what is in it.

    Parameters
    ----------
    agent
        An agent to serve: module:name, or id=module:name; may be repeated. The built-in demo otherwise.
    model
        Model of the built-in agent, for example openai:gpt-5; a deterministic one without a key otherwise.
    projection
        One's own feed projection, module:Name; may be repeated.
    gateways
        How many gateways; gateway i listens on PORT + i.
    agents
        How many agent services.
    workers
        How many workers.
    data
        Directory of the embedded servers (TURNLOG_DATA, .turnlog).
    port
        Port of the first gateway (TURNLOG_GATEWAY_PORT, 8080).
    """
    settings = load(
        **given(
            data=data,
            gateway=given(port=port),
            worker=given(agents=agent or None, model=model),
            projector=given(projections=projection or None),
        )
    )
    # Mistakes that show at once are told at once; what is wrong inside of a module its worker tells.
    for word in (*settings.worker.agents, *settings.projector.projections):
        require_module(word.rpartition("=")[2])
    ports = [settings.gateway.port + i for i in range(gateways)]
    _require_free(settings.gateway.host, ports)
    return asyncio.run(_up(settings, ports, agents=agents, workers=workers))


async def _up(settings: Settings, ports: Sequence[int], *, agents: int, workers: int) -> int:
    log = PrefixedLog(sys.stderr, width=len("projector-0"))
    stop = asyncio.Event()
    installation = Installation(settings)
    log("up", f"data in {settings.data.absolute()}")
    await installation.start()
    try:
        agent_ports = [free_port() for _ in range(agents)]
        site = installation.site([f"http://127.0.0.1:{port}" for port in agent_ports])
        specs = children(settings, site, ports, agent_ports, workers)
        supervisor = Supervisor(specs, log)
        _stop_on_signals(stop, supervisor)
        broken = None
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(installation.keep(stop, log))
            inviting = group.create_task(invite(f"http://{settings.gateway.host}:{ports[0]}", log))
            try:
                broken = await supervisor.run(stop, patience=_patience(settings))
            finally:
                stop.set()
                inviting.cancel()
                await asyncio.wait({keeping})
        if broken is not None:
            log("up", f"{broken.spec.name} could not run: it said why above")
            return COULD_NOT_RUN
        return FINE
    finally:
        await installation.stop()
        log("up", "stopped")


def children(
    settings: Settings, site: Site, ports: Sequence[int], agent_ports: Sequence[int], workers: int
) -> list[ChildSpec]:
    """The processes of one installation, each with the environment of its role."""
    common = {"TURNLOG_LOG_FORMAT": _log_format(settings)}
    if settings.worker.agents:
        common["TURNLOG_WORKER_AGENTS"] = ",".join(settings.worker.agents)
    if settings.worker.model:
        common["TURNLOG_WORKER_MODEL"] = settings.worker.model
    # One person on their own machine, unless they said otherwise.
    common["TURNLOG_AUTH"] = settings.auth if "auth" in settings.model_fields_set else "off"
    specs = []
    for i, port in enumerate(agent_ports):
        env = site.environment("agent") | common | {"TURNLOG_AGENT_PORT": str(port)}
        specs.append(ChildSpec(f"agent-{i}", "agent", (*launcher(), "agent"), env))
    for i, port in enumerate(ports):
        env = site.environment("gateway") | common | {"TURNLOG_GATEWAY_PORT": str(port)}
        specs.append(ChildSpec(f"gateway-{i}", "gateway", (*launcher(), "gateway"), env))
    env = site.environment("worker") | common
    specs += [ChildSpec(f"worker-{i}", "worker", (*launcher(), "worker"), env) for i in range(workers)]
    env = site.environment("projector") | common
    if settings.projector.projections:
        env["TURNLOG_PROJECTOR_PROJECTIONS"] = ",".join(settings.projector.projections)
    return [*specs, ChildSpec("projector-0", "projector", (*launcher(), "projector"), env)]


def launcher() -> tuple[str, ...]:
    """The words that run `turnlog` again, with this very interpreter."""
    script = Path(sys.prefix) / "bin" / "turnlog"
    return (sys.executable, str(script)) if script.is_file() else (sys.executable, "-m", "turnlog_main")


def _log_format(settings: Settings) -> str:
    # People read these lines, unless somebody asked for the machines' form.
    return settings.log.format if "format" in settings.log.model_fields_set else "console"


def _patience(settings: Settings) -> float:
    return max(settings.gateway.drain_seconds, settings.worker.drain_seconds) + _PATIENCE_MARGIN_SECONDS


def _stop_on_signals(stop: asyncio.Event, supervisor: Supervisor) -> None:
    def asked() -> None:
        if stop.is_set():
            supervisor.kill()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, asked)


def _require_free(host: str, ports: Sequence[int]) -> None:
    for port in ports:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
                probe.listen(1)
            except OSError as error:
                hint = "choose another with --port, or stop what listens there"
                raise CannotRun(f"cannot listen on {host}:{port} ({error.strerror}): {hint}") from error
