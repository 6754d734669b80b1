"""What became of background hooks and evaluations."""

from typing import Literal

import msgspec
from litestar import Request, Response, post
from litestar.datastructures import State
from litestar.exceptions import ClientException

from domain.clock import rfc3339
from domain.ids import Micros, SessionId
from services.agent.deps import Deps


class Asked(msgspec.Struct, frozen=True):
    """`before`: as `next` of an earlier answer."""

    session_ids: list[SessionId]
    limit: int
    kind: Literal["hook", "evaluation"] | None = None
    before: tuple[Micros, str] | None = None


_decode = msgspec.json.Decoder(Asked).decode


@post("/internal/hooks", status_code=200)
async def hook_runs(request: Request[object, object, State], deps: Deps) -> Response[bytes]:
    """Of those sessions, the newest first. `next` is None at the end."""
    try:
        asked = _decode(await request.body())
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ClientException() from error
    found = await deps.hook_runs.of(asked.session_ids, asked.kind, asked.limit + 1, asked.before)
    more = len(found) > asked.limit
    found = found[: asked.limit]
    items = [
        {
            **msgspec.structs.asdict(row),
            "scheduled_at": rfc3339(row.scheduled_at),
            "finished_at": None if row.finished_at is None else rfc3339(row.finished_at),
        }
        for row in found
    ]
    last = (found[-1].scheduled_at, found[-1].job_id) if more else None
    return Response(msgspec.json.encode({"items": items, "next": last}), media_type="application/json")
