"""Events and heads: what streams are made of."""

import asyncio
from typing import Annotated, Literal, TypeVar

import msgspec
from litestar import Request, Response, get, post
from litestar.datastructures import State
from litestar.exceptions import ClientException
from litestar.params import FromPath, FromQuery, QueryParameter

from domain.errors import SessionNotFound
from domain.ids import Sequence, SessionId, is_uuid
from services.agent.deps import Deps

_LAST = 2**63 - 1

Asked = TypeVar("Asked", bound=msgspec.Struct)


class HeadsQuestion(msgspec.Struct, frozen=True):
    """Which sessions; unknown ones are left out of the answer."""

    session_ids: list[SessionId]


class ItemsQuestion(msgspec.Struct, frozen=True):
    """Which items of one session."""

    item_ids: list[str]


def _body(body: bytes, kind: type[Asked]) -> Asked:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ClientException() from error


def known_form(session_id: str) -> SessionId:
    """Raises SessionNotFound for what cannot be the id of a session."""
    if not is_uuid(session_id):
        raise SessionNotFound(session_id=session_id)
    return SessionId(session_id)


@get("/internal/sessions/{session_id:str}/events")
async def events(
    deps: Deps,
    session_id: FromPath[str],
    after: Annotated[int, QueryParameter(ge=0, le=_LAST)],
    form: FromQuery[Literal["sse", "json"]] = "sse",
    limit: Annotated[int | None, QueryParameter(ge=1)] = None,
) -> Response[bytes]:
    """A replay page as ready bytes; the headers say what is in it."""
    page = await deps.store.wire_page(known_form(session_id), Sequence(after), deps.page_bytes, form, limit)
    headers = {
        "Turnlog-First": str(page.first),
        "Turnlog-Last": str(page.last),
        "Turnlog-Head": str(page.head),
        "Turnlog-Closed": "1" if page.closed else "0",
    }
    return Response(page.body, media_type="application/octet-stream", headers=headers)


@post("/internal/sessions/{session_id:str}/open-items", status_code=200)
async def open_items(request: Request[object, object, State], deps: Deps, session_id: FromPath[str]) -> Response[bytes]:
    """What the log knows of items whose temporary frames somebody has seen; null where no turn runs."""
    asked = _body(await request.body(), ItemsQuestion)
    running = await deps.store.open_items(known_form(session_id), asked.item_ids)
    return Response(msgspec.json.encode(running), media_type="application/json")


@post("/internal/heads", status_code=200)
async def heads(request: Request[object, object, State], deps: Deps) -> Response[bytes]:
    """Where sessions stand, in one statement, and the store's epoch."""
    asked = _body(await request.body(), HeadsQuestion)
    wanted = [session_id for session_id in asked.session_ids if is_uuid(session_id)]
    epoch, found = await asyncio.gather(deps.read_models.epoch(), deps.read_models.statuses(wanted))
    return Response(msgspec.json.encode({"epoch": epoch, "heads": found}), media_type="application/json")
