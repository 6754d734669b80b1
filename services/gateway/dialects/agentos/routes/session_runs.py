"""`/sessions/{id}/runs`: the runs of a session, whatever component it belongs to."""

from typing import Annotated, Any

from litestar import Response, get
from litestar.params import FromPath, QueryParameter

from domain.errors import SessionNotFound
from services.gateway.dialects.agentos.answers import Refused, json_answer
from services.gateway.dialects.agentos.finding import Finder
from services.gateway.dialects.agentos.forms import HttpRequest, whole_number
from services.gateway.dialects.agentos.objects import preview_row, run_row
from services.gateway.dialects.agentos.routes.common import Find
from services.gateway.dialects.agentos.routes.runs import runs_of
from services.gateway.dialects.agentos.routes.sessions import component_of
from services.gateway.dialects.agentos.run import Run

Statuses = Annotated[list[str] | None, QueryParameter()]
Text = Annotated[str | None, QueryParameter()]


async def _runs(finder: Finder, request: HttpRequest, session_id: str) -> list[Run]:
    try:
        registration = (await finder.session(request, session_id)).registration
    except SessionNotFound as error:
        raise Refused(404, f"Session with ID {session_id} not found") from error
    return await runs_of(finder, await component_of(finder, registration), registration)


def _chosen(runs: list[Run], status: list[str] | None, after: str | None, before: str | None) -> list[Run]:
    low = None if not after else whole_number("query", "created_after", after)
    high = None if not before else whole_number("query", "created_before", before)
    return [
        run
        for run in runs
        if (not status or run.wire_status in status)
        and (low is None or run.created_at // 1_000_000 >= low)
        and (high is None or run.created_at // 1_000_000 <= high)
    ]


def _without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


_ROWS = {"runs": run_row, "run-previews": preview_row}
"""Last step of a path -> what it lists of a run."""


@get([f"/sessions/{{session_id:str}}/{step}" for step in _ROWS])
async def list_session_runs(
    request: HttpRequest,
    finder: Find,
    session_id: FromPath[str],
    status: Statuses = None,
    created_after: Text = None,
    created_before: Text = None,
) -> Response[bytes]:
    """Oldest first; previews are light."""
    runs = _chosen(await _runs(finder, request, session_id), status, created_after, created_before)
    row = _ROWS[str(request.scope["path_template"]).rpartition("/")[2]]
    return json_answer([_without_nulls(row(run)) for run in runs])


@get("/sessions/{session_id:str}/runs/{run_id:str}")
async def get_session_run(
    request: HttpRequest, finder: Find, session_id: FromPath[str], run_id: FromPath[str]
) -> Response[bytes]:
    """One of them."""
    for run in await _runs(finder, request, session_id):
        if run_id in (run.run_id, run.turn_id):
            return json_answer(run_row(run))
    raise Refused(404, f"Run with ID {run_id} not found in session {session_id}")
