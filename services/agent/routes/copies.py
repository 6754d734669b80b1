"""`POST /internal/sessions/{id}/copy`: a session's history out of another one."""

from typing import Any

import msgspec
from litestar import Request, Response, post
from litestar.exceptions import ClientException
from litestar.params import FromPath

from services.agent.copying import Copy, copy
from services.agent.deps import Deps
from services.agent.routes.replay import known_form

_decode = msgspec.json.Decoder(Copy).decode


@post("/internal/sessions/{session_id:str}/copy", status_code=200)
async def copy_session(request: Request[Any, Any, Any], deps: Deps, session_id: FromPath[str]) -> Response[bytes]:
    """200 when all of it is committed; the same request again is the same answer."""
    try:
        asked = _decode(await request.body())
    except msgspec.MsgspecError as error:
        raise ClientException() from error
    count = await copy(deps, known_form(session_id), asked)
    return Response(msgspec.json.encode({"turns": count}), media_type="application/json")
