"""Turns, messages, status and agents: the read models."""

import asyncio
from typing import Annotated, Any

import msgspec
from litestar import Response, get
from litestar.params import FromPath, FromQuery, QueryParameter

from domain.checkpoints import shown
from domain.errors import BadCursor, MinSequenceTimeout, TurnNotFound
from domain.ids import SessionId
from domain.texts import unsafe
from domain.turn import view
from services.agent.deps import AgentDeps, Deps
from services.agent.routes.replay import known_form

_MIN_SEQUENCE_SECONDS = 5.0
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.25
_LAST_CURSOR = 2**62

Limit = Annotated[int, QueryParameter(ge=1, le=500)]


def _json(value: Any) -> Response[bytes]:
    return Response(msgspec.json.encode(value), media_type="application/json")


@get("/internal/agents")
async def agents(deps: Deps) -> Response[bytes]:
    """What workers have announced."""
    return _json(await deps.catalogue.agents())


@get("/internal/sessions/{session_id:str}/turns")
async def turns(
    deps: Deps,
    session_id: FromPath[str],
    status: FromQuery[str | None] = None,
    limit: Limit = 50,
    cursor: FromQuery[str | None] = None,
) -> Response[bytes]:
    """Newest first."""
    below = None
    if cursor is not None:
        if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 20 and int(cursor) < _LAST_CURSOR):
            raise BadCursor()
        below = int(cursor)
    page = await deps.read_models.turns(known_form(session_id), status=status, limit=limit, cursor=below)
    return _json(
        {
            "items": [view(turn) for turn in page.items],
            "next_cursor": None if page.next_cursor is None else str(page.next_cursor),
            "as_of_sequence": page.as_of_sequence,
        }
    )


@get("/internal/sessions/{session_id:str}/turns/{turn_ref:str}")
async def turn(deps: Deps, session_id: FromPath[str], turn_ref: FromPath[str]) -> Response[bytes]:
    """By id, or by the id its submitter chose."""
    if unsafe(turn_ref):
        raise TurnNotFound()
    found, _ = await deps.read_models.turn(known_form(session_id), turn_ref)
    return _json(view(found))


@get("/internal/sessions/{session_id:str}/turns/{turn_ref:str}/checkpoints")
async def checkpoints(deps: Deps, session_id: FromPath[str], turn_ref: FromPath[str]) -> Response[bytes]:
    """In the order of the log."""
    if unsafe(turn_ref):
        raise TurnNotFound()
    session = known_form(session_id)
    found, _ = await deps.read_models.turn(session, turn_ref)
    return _json(shown(found, await deps.history.turn_events(session, found.turn_id)))


@get("/internal/sessions/{session_id:str}/messages")
async def messages(
    deps: Deps,
    session_id: FromPath[str],
    limit: Limit = 50,
    before: FromQuery[str | None] = None,
    after: FromQuery[str | None] = None,
    min_sequence: Annotated[int | None, QueryParameter(ge=0)] = None,
) -> Response[bytes]:
    """In reading order; the newest ones unless a place is named."""
    session = known_form(session_id)
    if min_sequence is not None:
        await _reached(deps, session, min_sequence)
    try:
        page = await deps.read_models.messages(session, limit=limit, before=before, after=after)
    except ValueError as error:
        raise BadCursor() from error
    return _json(page)


@get("/internal/sessions/{session_id:str}/status")
async def status(deps: Deps, session_id: FromPath[str]) -> Response[bytes]:
    """Whose move it is, and what waits."""
    epoch, found = await asyncio.gather(deps.read_models.epoch(), deps.read_models.status(known_form(session_id)))
    return _json({**msgspec.structs.asdict(found), "epoch": epoch})


async def _reached(deps: AgentDeps, session: SessionId, sequence: int) -> None:
    """Waits until the models, which are written with the events, have that one. Raises MinSequenceTimeout."""
    end = deps.clock.monotonic() + _MIN_SEQUENCE_SECONDS
    pause = _FIRST_PAUSE
    while True:
        at = (await deps.read_models.status(session)).last_sequence
        if at >= sequence:
            return
        if deps.clock.monotonic() + pause > end:
            raise MinSequenceTimeout(min_sequence=sequence, as_of_sequence=at)
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
