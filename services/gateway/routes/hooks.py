"""`/v1/sessions/{id}/hooks`: background hooks and evaluations of a session."""

from typing import Annotated, Literal

import msgspec
from litestar import Request, Response, get
from litestar.datastructures import State
from litestar.params import FromQuery, QueryParameter

from domain.ids import is_uuid
from services.gateway import shapes
from services.gateway.cursors import page_of, place_of
from services.gateway.deps import Deps
from services.gateway.openapi import described
from services.gateway.refusals import BadListCursor
from services.gateway.routes.sessions import SessionRef

_Place = tuple[int, str]
_decoder: msgspec.json.Decoder[_Place] = msgspec.json.Decoder(_Place)


def _place(cursor: str | None) -> _Place | None:
    if cursor is None:
        return None
    place = place_of(cursor, _decoder)
    if not is_uuid(place[1]) or not 0 <= place[0] < 2**53:
        raise BadListCursor()
    return place


@get(
    "/v1/sessions/{session_ref:str}/hooks",
    operation_id="listHooks",
    operation_class=described({200: shapes.HookRuns}, 400, 404, 422, 503),
)
async def list_hooks(
    request: Request[object, object, State],
    deps: Deps,
    session_ref: SessionRef,
    kind: FromQuery[Literal["hook", "evaluation"] | None] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=200)] = 50,
    cursor: FromQuery[str | None] = None,
) -> Response[bytes]:
    """What became of hooks in the background, and what evaluations found. A read model across sessions: a moment
    behind."""
    registration = await deps.authenticator.session(request, session_ref)
    asked = {"session_ids": [registration.session_id], "kind": kind, "limit": limit, "before": _place(cursor)}
    answer = page_of(await deps.agent.hook_runs(msgspec.json.encode(asked)))
    return Response(answer, media_type="application/json")
