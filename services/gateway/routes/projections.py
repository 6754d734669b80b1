"""`/v1/search` and `/v1/projections`: read models across sessions."""

from typing import Annotated

import msgspec
from litestar import Request, Response, get
from litestar.datastructures import State
from litestar.exceptions import ValidationException
from litestar.params import FromQuery, QueryParameter

from domain.ids import is_uuid
from domain.texts import unsafe
from services.gateway import shapes
from services.gateway.cursors import page_of, place_of
from services.gateway.deps import Deps
from services.gateway.openapi import described
from services.gateway.refusals import BadListCursor

# Of one owner, the newest: more than anybody looks through.
_SESSIONS = 10_000

_Place = tuple[int, str, int]
_decoder: msgspec.json.Decoder[_Place] = msgspec.json.Decoder(_Place)


def _place(cursor: str | None) -> _Place | None:
    if cursor is None:
        return None
    place = at, session_id, sequence = place_of(cursor, _decoder)
    if not is_uuid(session_id) or not 0 <= at < 2**53 or not 0 <= sequence < 2**62:
        raise BadListCursor()
    return place


@get(
    "/v1/search",
    operation_id="searchTexts",
    operation_class=described({200: shapes.FoundTexts}, 400, 422, 503),
)
async def search_texts(
    request: Request[object, object, State],
    deps: Deps,
    q: Annotated[str | None, QueryParameter(min_length=1, max_length=500)] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=100)] = 20,
    cursor: FromQuery[str | None] = None,
) -> Response[bytes]:
    """Texts of one's own sessions that have all these words; of scripts without spaces, these characters in a row."""
    owner = deps.authenticator.owner(request)
    if q is None:  # said only to those who may ask
        raise ValidationException("The query parameter q is missing.")
    place = _place(cursor)
    sessions = [] if unsafe(q) else await deps.registrations.ids(owner, _SESSIONS)
    asked = {"q": q if sessions else "", "session_ids": sessions, "limit": limit, "before": place}
    answer = page_of(await deps.agent.search(msgspec.json.encode(asked)))
    return Response(answer, media_type="application/json")


@get(
    "/v1/projections",
    operation_id="listProjections",
    operation_class=described({200: shapes.Projection}, 503, many=True),
)
async def list_projections(request: Request[object, object, State], deps: Deps) -> Response[bytes]:
    """How far the read models across sessions are, for users: a session token opens one session only."""
    deps.authenticator.owner(request)
    return Response(await deps.agent.read("/projections"), media_type="application/json")
