"""`/internal/blobs`: attachments that gateways hand in before they submit the turn that names them."""

import asyncio
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, post, put
from litestar.params import FromPath, QueryParameter

from domain.errors import AttachmentMissing
from services.agent.deps import Deps

_MOST = 1000
# Each upload is in memory until it is stored; the others wait with theirs at their gateways.
_AT_ONCE = asyncio.Semaphore(2)


class _Names(msgspec.Struct, frozen=True):
    names: list[Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]]


_names = msgspec.json.Decoder(_Names)


@post("/internal/blobs/known", status_code=200)
async def known(request: Request[Any, Any, Any], deps: Deps) -> Response[bytes]:
    """Which of those names need not be sent. They stay for some time, also if nobody names them."""
    asked = _names.decode(await request.body()).names[:_MOST]
    return Response(msgspec.json.encode(sorted(await deps.blobs.known(asked))), media_type="application/json")


@put("/internal/blobs/{name:str}", status_code=200)
async def keep(
    request: Request[Any, Any, Any],
    deps: Deps,
    name: FromPath[str],
    media_type: Annotated[str | None, QueryParameter()] = None,
) -> Response[bytes]:
    """Store the body. 409 where it is not what its name says: it was damaged on the way. A repeat changes nothing."""
    async with _AT_ONCE:
        kept = await deps.blobs.keep(await request.body(), media_type)
    if kept != name:
        raise AttachmentMissing()
    return Response(msgspec.json.encode({"sha256": kept}), media_type="application/json")
