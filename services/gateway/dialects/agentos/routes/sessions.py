"""`/sessions`: the sender's sessions, whatever component they belong to."""

import asyncio
from typing import Annotated, Any

import msgspec
from litestar import Response, delete, get, patch, post
from litestar.params import FromPath, QueryParameter

from domain.errors import SessionNotFound
from infra.postgres.registrations import Registration
from services.gateway import registering
from services.gateway.bodies import MAX_METADATA_BYTES, MAX_TITLE
from services.gateway.dialects.agentos.answers import Refused, field_fault, json_answer, missing
from services.gateway.dialects.agentos.component import KINDS, Component
from services.gateway.dialects.agentos.finding import Finder
from services.gateway.dialects.agentos.forms import HttpRequest, storable
from services.gateway.dialects.agentos.opening import open_session
from services.gateway.dialects.agentos.routes.common import Find, paged, paging
from services.gateway.dialects.agentos.routes.runs import runs_of
from services.gateway.dialects.agentos.sessions import session_detail, session_row, turn_summaries

_KINDS = tuple(KINDS.values())
_AT_ONCE = 8

Text = Annotated[str | None, QueryParameter()]


@get("/sessions")
async def list_sessions(
    request: HttpRequest,
    finder: Find,
    type_: Annotated[str | None, QueryParameter(name="type")] = None,
    component_id: Text = None,
    user_id: Text = None,
    session_name: Text = None,
    limit: Text = None,
    page: Text = None,
    sort_order: Annotated[str, QueryParameter()] = "desc",
) -> Response[bytes]:
    """By creation; the newest first unless asked otherwise."""
    owner = finder.deps.authenticator.owner(request)
    rows_a_page, number = paging(limit, page)
    components = {one.agent_id: one for one in await finder.components()}
    found = await finder.names.sessions(
        owner,
        agents=_agents(components, type_, component_id),
        title=session_name,
        user=user_id if finder.deps.authenticator.off else None,
        ascending=sort_order == "asc",
        limit=rows_a_page,
        offset=(number - 1) * rows_a_page,
    )
    few = asyncio.Semaphore(_AT_ONCE)

    async def row(registration: Registration) -> dict[str, Any]:
        async with few:
            turns = await turn_summaries(finder, registration)
        return session_row(finder, registration, components.get(registration.agent_id), turns)

    rows = await asyncio.gather(*(row(one) for one in found.items))
    return json_answer(paged(rows, number, rows_a_page, found.total))


def _agents(components: dict[str, Component], kind: str | None, component_id: str | None) -> list[str] | None:
    if kind is None and component_id is None:
        return None
    return [
        one.agent_id for one in components.values() if kind in (None, one.kind) and component_id in (None, one.agent_id)
    ]


@post("/sessions", status_code=201)
async def create_session(
    request: HttpRequest, finder: Find, type_: Annotated[str | None, QueryParameter(name="type")] = None
) -> Response[bytes]:
    """A session without runs yet."""
    said = await _body(request)
    kinds = [kind for kind in _KINDS if isinstance(said.get(f"{kind}_id"), str) and type_ in (None, kind)]
    if not kinds:
        raise missing("body", f"{type_ or 'agent'}_id")
    component = await finder.component_of_kind(kinds[0], said[f"{kinds[0]}_id"])
    name = said.get("session_id") or finder.deps.ids.uuid7()
    if not isinstance(name, str):
        raise field_fault("body", "session_id", "string_type", "Input should be a valid string", None)
    try:
        await finder.session(request, name)
    except SessionNotFound:
        pass
    else:
        raise Refused(409, f"Session with id '{name}' already exists. Use PATCH /sessions/{name} to update it.")
    kept = {key: said[key] for key in ("session_state", "metadata", "session_name") if said.get(key) is not None}
    _check_name(kept.get("session_name"))
    user = said.get("user_id")
    access = await open_session(finder, request, component, name, user if isinstance(user, str) else None, kept)
    return json_answer(session_detail(finder, access.registration, component, [], []), 201)


@get("/sessions/{session_id:str}")
async def get_session(
    request: HttpRequest,
    finder: Find,
    session_id: FromPath[str],
    type_: Annotated[str | None, QueryParameter(name="type")] = None,
) -> Response[bytes]:
    """One session with what was said in it."""
    what = f"{type_.capitalize()} Session" if type_ in _KINDS else "Session"
    return json_answer(await _detail(finder, await _session(finder, request, session_id, what)))


@post("/sessions/{session_id:str}/rename", status_code=200)
async def rename_session(request: HttpRequest, finder: Find, session_id: FromPath[str]) -> Response[bytes]:
    """Give it a name."""
    said = await _body(request)
    if not isinstance(said.get("session_name"), str):
        raise missing("body", "session_name")
    return json_answer(await _renamed(finder, await _session(finder, request, session_id), said["session_name"]))


@patch("/sessions/{session_id:str}")
async def change_session(request: HttpRequest, finder: Find, session_id: FromPath[str]) -> Response[bytes]:
    """Its name can be changed. Its state is what its runs made of it."""
    said = await _body(request)
    registration = await _session(finder, request, session_id)
    fixed = sorted(name for name in ("session_state", "metadata", "summary") if said.get(name) is not None)
    if fixed:
        raise Refused(400, f"Only session_name can be changed, not {', '.join(fixed)}")
    name = said.get("session_name")
    if name is None:
        return json_answer(await _detail(finder, registration))
    return json_answer(await _renamed(finder, registration, name))


@delete("/sessions/{session_id:str}", status_code=204)
async def delete_session(request: HttpRequest, finder: Find, session_id: FromPath[str]) -> None:
    """What runs is stopped, what waits is cancelled, and the id is never used again."""
    await _delete(finder, request, session_id)


@delete("/sessions", status_code=204)
async def delete_sessions(request: HttpRequest, finder: Find) -> None:
    """The same for several."""
    names = (await _body(request)).get("session_ids")
    if not isinstance(names, list):
        raise missing("body", "session_ids")
    for name in names[:1000]:
        if isinstance(name, str):
            await _delete(finder, request, name)


async def _delete(finder: Finder, request: HttpRequest, name: str) -> None:
    try:
        await registering.delete(finder.deps, (await finder.session(request, name)).registration)
    except SessionNotFound:
        return


async def _session(finder: Finder, request: HttpRequest, name: str, what: str = "Session") -> Registration:
    try:
        return (await finder.session(request, name)).registration
    except SessionNotFound as error:
        raise Refused(404, f"{what} with id '{name}' not found") from error


async def component_of(finder: Finder, registration: Registration) -> Component:
    """What the session belongs to, also where no worker serves it any more."""
    for one in await finder.components():
        if one.agent_id == registration.agent_id:
            return one
    return Component(agent_id=registration.agent_id, name=registration.agent_id)


async def _detail(finder: Finder, registration: Registration) -> dict[str, Any]:
    component = await component_of(finder, registration)
    turns = await turn_summaries(finder, registration)
    return session_detail(finder, registration, component, turns, await runs_of(finder, component, registration))


async def _renamed(finder: Finder, registration: Registration, name: Any) -> dict[str, Any]:
    _check_name(name)
    changed = await finder.deps.registrations.change(registration.session_id, {"title": name})
    if changed is None:
        raise Refused(404, f"Session with id '{registration.external_id or registration.session_id}' not found")
    return await _detail(finder, changed)


def _check_name(name: Any) -> None:
    if name is not None and (not isinstance(name, str) or len(name) > MAX_TITLE):
        raise field_fault("body", "session_name", "string_type", f"A text of at most {MAX_TITLE} characters", None)


async def _body(request: HttpRequest) -> dict[str, Any]:
    raw = await request.body() or b"{}"
    if len(raw) > MAX_METADATA_BYTES * 4:
        raise Refused(413, "Content Too Large")
    try:
        said = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise field_fault("body", "", "json_invalid", "JSON decode error", None) from error
    if not isinstance(said, dict) or not storable(said):
        raise field_fault("body", "", "model_attributes_type", "Input should be a valid dictionary", None)
    return said
