"""`…/runs/{run_id}/checkpoints`: the places a run can be continued from, and the run as it was there."""

from litestar import Response, get
from litestar.params import FromPath

from services.gateway.dialects.agentos.answers import Refused, json_answer
from services.gateway.dialects.agentos.forms import HttpRequest, whole_number
from services.gateway.dialects.agentos.messages import messages_of
from services.gateway.dialects.agentos.objects import checkpoints, snapshot
from services.gateway.dialects.agentos.routes.common import Find, SessionQuery, paths
from services.gateway.dialects.agentos.routes.runs import read_or_404

_KINDS = ("agents", "teams")


@get(paths("/runs/{run_id:str}/checkpoints", *_KINDS))
async def list_checkpoints(
    request: HttpRequest,
    finder: Find,
    component_id: FromPath[str],
    run_id: FromPath[str],
    session_id: SessionQuery = None,
) -> Response[bytes]:
    """Oldest first."""
    component = await finder.component(request, component_id)
    run = (await read_or_404(finder, request, component, run_id, session_id)).run
    return json_answer({"run_id": run.run_id, "session_id": run.session_id, "checkpoints": checkpoints(run)})


@get(paths("/runs/{run_id:str}/checkpoints/{message_index:str}", *_KINDS))
async def get_checkpoint(
    request: HttpRequest,
    finder: Find,
    component_id: FromPath[str],
    run_id: FromPath[str],
    message_index: FromPath[str],
    session_id: SessionQuery = None,
) -> Response[bytes]:
    """The run with that many of its messages."""
    component = await finder.component(request, component_id)
    index = whole_number("path", "message_index", message_index)
    run = (await read_or_404(finder, request, component, run_id, session_id)).run
    last = len(messages_of(run))
    if not 0 <= index <= last:
        raise Refused(400, f"message_index must be between 0 and {last}")
    return json_answer(snapshot(run, index))
