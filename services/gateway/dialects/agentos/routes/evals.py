"""`GET /eval-runs`: what evaluation hooks found, over all of the sender's sessions."""

from typing import Annotated, Any

import msgspec
from litestar import Response, get
from litestar.params import FromPath, QueryParameter

from services.gateway.dialects.agentos.answers import Refused, json_answer
from services.gateway.dialects.agentos.component import Component
from services.gateway.dialects.agentos.finding import Finder
from services.gateway.dialects.agentos.forms import HttpRequest
from services.gateway.dialects.agentos.routes.common import Find, paged, paging

_MOST_SESSIONS = 1_000
_MOST_RUNS = 1_000

Text = Annotated[str | None, QueryParameter()]


class _HookRun(msgspec.Struct, frozen=True):
    job_id: str
    session_id: str
    turn_id: str
    hook: str
    status: str
    scheduled_at: str
    result: Any = None
    error: str | None = None
    finished_at: str | None = None


class _HookRuns(msgspec.Struct, frozen=True):
    items: list[_HookRun]


@get("/eval-runs")
async def list_evaluations(
    request: HttpRequest,
    finder: Find,
    agent_id: Text = None,
    team_id: Text = None,
    workflow_id: Text = None,
    limit: Text = None,
    page: Text = None,
) -> Response[bytes]:
    """The newest first."""
    rows, number = paging(limit, page)
    wanted = agent_id or team_id or workflow_id
    found = [run for run in await _evaluations(finder, request) if wanted in (None, _component_id(run))]
    shown = found[(number - 1) * rows : number * rows]
    return json_answer(paged(shown, number, rows, len(found)))


@get("/eval-runs/{eval_run_id:str}")
async def get_evaluation(request: HttpRequest, finder: Find, eval_run_id: FromPath[str]) -> Response[bytes]:
    """One of them."""
    for run in await _evaluations(finder, request):
        if run["id"] == eval_run_id:
            return json_answer(run)
    raise Refused(404, f"Eval run with id '{eval_run_id}' not found")


def _component_id(run: dict[str, Any]) -> str | None:
    found: str | None = run.get("agent_id") or run.get("team_id") or run.get("workflow_id")
    return found


async def _evaluations(finder: Finder, request: HttpRequest) -> list[dict[str, Any]]:
    owner = finder.deps.authenticator.owner(request)
    sessions = await finder.names.sessions(
        owner, agents=None, title=None, user=None, ascending=False, limit=_MOST_SESSIONS, offset=0
    )
    if not sessions.items:
        return []
    agents = {str(one.session_id): one.agent_id for one in sessions.items}
    components = {one.agent_id: one for one in await finder.components()}
    asked = {"session_ids": list(agents), "limit": _MOST_RUNS, "kind": "evaluation"}
    found = msgspec.json.decode(await finder.deps.agent.hook_runs(msgspec.json.encode(asked)), type=_HookRuns)
    return [_shown(run, agents.get(run.session_id, ""), components) for run in found.items]


def _shown(run: _HookRun, agent_id: str, components: dict[str, Component]) -> dict[str, Any]:
    component = components.get(agent_id)
    data = run.result if isinstance(run.result, dict) else {"result": run.result}
    shown: dict[str, Any] = {
        "id": run.job_id,
        f"{'agent' if component is None else component.kind}_id": agent_id,
        "name": run.hook,
        "evaluated_component_name": None if component is None else component.name,
        "eval_type": "agent_as_judge",
        "eval_data": {**data, "status": run.status, **({} if run.error is None else {"error": run.error})},
        "eval_input": {"run_id": run.turn_id},
        "created_at": run.scheduled_at,
        "updated_at": run.finished_at or run.scheduled_at,
    }
    return {name: value for name, value in shown.items() if value is not None}
