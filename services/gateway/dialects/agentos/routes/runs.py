"""One run and lists of them: poll, list, cancel."""

from typing import Annotated, Any

from litestar import Response, get, post
from litestar.params import FromPath, QueryParameter

from domain.commands import CancelTurn, InterruptTurn
from domain.errors import SessionNotFound, TurnNotCancellable, TurnNotFound, TurnNotRunning
from domain.ids import CommandKey, TurnId
from infra.postgres.registrations import Registration
from services.gateway.dialects.agentos.answers import Refused, json_answer, missing
from services.gateway.dialects.agentos.component import Component
from services.gateway.dialects.agentos.finding import Finder, Found
from services.gateway.dialects.agentos.forms import HttpRequest, read_form
from services.gateway.dialects.agentos.objects import run_object, run_row
from services.gateway.dialects.agentos.reader import RunReader, read_together
from services.gateway.dialects.agentos.routes.common import Find, SessionQuery, paths
from services.gateway.dialects.agentos.run import STATUS, Run
from services.gateway.routes.turns import trace_of

_TRIES = 5


@get(paths("/runs/{run_id:str}"))
async def get_run(
    request: HttpRequest,
    finder: Find,
    component_id: FromPath[str],
    run_id: FromPath[str],
    session_id: SessionQuery = None,
) -> Response[bytes]:
    """The run as it stands, with its events so far (pieces of text left out)."""
    component = await finder.component(request, component_id)
    reader = await read_or_404(finder, request, component, run_id, session_id)
    return json_answer(run_object(reader.run, reader.fold.events))


@get(paths("/runs"))
async def list_runs(
    request: HttpRequest,
    finder: Find,
    component_id: FromPath[str],
    session_id: SessionQuery = None,
    status: Annotated[str | None, QueryParameter()] = None,
) -> Response[bytes]:
    """All runs of the component in a session, oldest first."""
    component = await finder.component(request, component_id)
    if not session_id:
        raise missing("query", "session_id")
    registration = (await finder.session(request, session_id)).registration
    if registration.agent_id != component.agent_id:
        return json_answer([])
    runs = await runs_of(finder, component, registration)
    return json_answer([run_row(run) for run in runs if status is None or run.wire_status == status])


@post(paths("/runs/{run_id:str}/cancel"), status_code=200)
async def cancel_run(
    request: HttpRequest,
    finder: Find,
    component_id: FromPath[str],
    run_id: FromPath[str],
    session_id: SessionQuery = None,
) -> Response[bytes]:
    """Stop a run, wherever it is: what waits or is paused is cancelled at once, what runs is asked to stop. The answer
    tells its state; a run that is over stays as it is."""
    component = await finder.component(request, component_id)
    if not session_id:
        session_id = (await read_form(request)).text("session_id")
    found = await run_or_404(finder, request, component, run_id, session_id)
    status = await _cancel(finder, request, found)
    name = found.registration.external_id or found.registration.session_id
    return json_answer({"run_id": found.turn.run_id, "session_id": name, "status": status})


async def _cancel(finder: Finder, request: HttpRequest, found: Found) -> str:
    """Its state may change between the look and the command: then look again."""
    registration, turn = found.registration, found.turn
    said: dict[str, Any] = {
        "session_id": registration.session_id,
        "by": registration.user_id,
        "trace": trace_of(request),
        "turn_id": TurnId(turn.turn_id),
    }
    for _ in range(_TRIES):
        key = CommandKey(finder.deps.ids.uuid7())
        if turn.terminal:
            return "REGENERATED" if turn.superseded_by is not None else STATUS[turn.status]
        try:
            if turn.status == "running":
                await finder.deps.agent.execute(InterruptTurn(key=key, then="go_on", **said))
                return "RUNNING"
            await finder.deps.agent.execute(CancelTurn(key=key, **said))
        except (TurnNotRunning, TurnNotCancellable):
            pass
        else:
            return "CANCELLED"
        turn = await finder.turn(registration.session_id, turn.turn_id)
    raise Refused(409, "Run is settling between execution legs; retry in a moment", {"Retry-After": "1"})


async def run_or_404(
    finder: Finder, request: HttpRequest, component: Component, run_id: str, session_id: str | None
) -> Found:
    """The run; 404 whether it, its session or the right to it is missing."""
    try:
        return await finder.run(request, component, run_id, session_id or None)
    except (SessionNotFound, TurnNotFound) as error:
        raise Refused(404, "Run not found") from error


async def read_or_404(
    finder: Finder, request: HttpRequest, component: Component, run_id: str, session_id: str | None
) -> RunReader:
    """The run with all that is committed of it, for routes that must be told its session."""
    if not session_id:
        raise missing("query", "session_id")
    return await finder.read(await run_or_404(finder, request, component, run_id, session_id))


async def runs_of(finder: Finder, component: Component, registration: Registration) -> list[Run]:
    """All runs of a session, oldest first, by one pass over its log."""
    readers = [finder.reader(component, registration, turn) for turn in await finder.turns(registration.session_id)]
    await read_together(finder.deps.agent, registration.session_id, readers)
    return [reader.run for reader in readers]
