"""Feed projections: how far they are, and search."""

import msgspec
from litestar import Request, Response, get, post
from litestar.datastructures import State
from litestar.exceptions import ClientException

from domain.clock import rfc3339
from domain.ids import Micros, SessionId
from projections.search.terms import question
from services.agent.deps import Deps


class Search(msgspec.Struct, frozen=True):
    """`session_ids`: where to look; `before`: as `next` of an earlier answer."""

    q: str
    session_ids: list[SessionId]
    limit: int
    before: tuple[Micros, SessionId, int] | None = None


_decode = msgspec.json.Decoder(Search).decode


@get("/internal/projections")
async def projections(deps: Deps) -> Response[bytes]:
    """Those that are served, with their lag."""
    return Response(msgspec.json.encode(await deps.feed_reads.served()), media_type="application/json")


@post("/internal/search", status_code=200)
async def search(request: Request[object, object, State], deps: Deps) -> Response[bytes]:
    """The newest first. `next` is None at the end."""
    try:
        asked = _decode(await request.body())
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ClientException() from error
    wanted = question(asked.q)
    found = []
    if wanted.terms and asked.session_ids:
        found = await deps.feed_reads.find(asked.session_ids, wanted.terms, wanted.runs, asked.limit + 1, asked.before)
    more = len(found) > asked.limit
    found = found[: asked.limit]
    items = [{**msgspec.structs.asdict(one), "created_at": rfc3339(one.created_at)} for one in found]
    last = (found[-1].created_at, found[-1].session_id, found[-1].sequence) if more else None
    return Response(msgspec.json.encode({"items": items, "next": last}), media_type="application/json")
