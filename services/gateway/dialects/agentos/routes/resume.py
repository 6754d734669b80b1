"""`…/runs/{run_id}/resume`: the stream of a run, from where the client lost it."""

from typing import Annotated, Any

from litestar import Response, get, post
from litestar.params import FromPath, HeaderParameter, QueryParameter

from domain.errors import SessionNotFound, TurnNotFound
from services.gateway.dialects.agentos.finding import Finder
from services.gateway.dialects.agentos.forms import HttpRequest, read_form, whole_number
from services.gateway.dialects.agentos.reader import RunReader
from services.gateway.dialects.agentos.routes.common import Find, SessionQuery, paths
from services.gateway.dialects.agentos.streams import RunStream, meta
from services.gateway.sse.response import NoStreamNow

LastEventId = Annotated[str | None, HeaderParameter(name="Last-Event-ID")]


@post(paths("/runs/{run_id:str}/resume"), status_code=200)
async def resume_run(
    request: HttpRequest,
    finder: Find,
    component_id: FromPath[str],
    run_id: FromPath[str],
    last_event_id: LastEventId = None,
) -> Response[Any]:
    """Everything after the index that the client has, then live what comes."""
    form = await read_form(request)
    index = form.number("last_event_index")
    if index is None and last_event_id:
        index = whole_number("header", "Last-Event-ID", last_event_id)
    return await _resumed(finder, request, component_id, run_id, form.text("session_id"), index)


@get(paths("/runs/{run_id:str}/resume"))
async def watch_run(
    request: HttpRequest,
    finder: Find,
    component_id: FromPath[str],
    run_id: FromPath[str],
    session_id: SessionQuery = None,
    last_event_index: Annotated[str | None, QueryParameter()] = None,
    last_event_id: LastEventId = None,
) -> Response[Any]:
    """The same for a browser's EventSource, which can only GET and reconnects with the last id by itself."""
    said = last_event_id or last_event_index
    index = None if not said else whole_number("query", "last_event_index", said)
    if finder.deps.hub.draining or finder.deps.hub.full:
        return NoStreamNow(finder.deps.hub)
    return await _resumed(finder, request, component_id, run_id, session_id, index, stops=last_event_id is not None)


async def _resumed(
    finder: Finder,
    request: HttpRequest,
    component_id: str,
    run_id: str,
    session_id: str | None,
    index: int | None,
    *,
    stops: bool = False,
) -> Response[Any]:
    component = await finder.component(request, component_id)
    try:
        found = await finder.run(request, component, run_id, session_id or None)
    except (SessionNotFound, TurnNotFound):
        return Response(
            meta("error", {"error": f"Run {run_id} not found in buffer or database"}),
            media_type="text/event-stream",
        )
    reader = finder.reader(found.component, found.registration, found.turn)
    loaded = await reader.load(found.turn.last_sequence if found.turn.terminal else None)
    after = -1 if index is None else index
    missed = [event for event in loaded if event["event_index"] > after]
    if stops and reader.run.terminal and not missed:
        # An EventSource that has everything comes back until it is told to stop.
        return Response(b"", status_code=204)
    if reader.run.ended():
        opening = [_replay(reader, len(missed), index)]
    else:
        opening = []
        if missed:
            opening.append(_catch_up(reader, len(missed)))
    subscribed = b"" if reader.run.ended() else _subscribed(reader, component.kind)
    return RunStream(
        finder.deps,
        reader,
        found.registration.session_id,
        loaded,
        after=after,
        guard=finder.guard(found.access),
        opening=opening,
        behind=subscribed,
    ).response()


def _replay(reader: RunReader, missed: int, index: int | None) -> bytes:
    run, total = reader.run, reader.fold.count
    return meta(
        "replay",
        {
            "run_id": run.run_id,
            "status": run.wire_status,
            "total_events": missed,
            "total_buffered": total,
            "last_event_index_requested": -1 if index is None else index,
            "message": f"Run {run.wire_status}. Replaying {missed} missed events (of {total} total).",
        },
    )


def _catch_up(reader: RunReader, missed: int) -> bytes:
    return meta(
        "catch_up",
        {
            "run_id": reader.run.run_id,
            "status": "running",
            "missed_events": missed,
            "current_event_count": reader.fold.count,
            "message": f"Catching up on {missed} missed events.",
        },
    )


def _subscribed(reader: RunReader, kind: str) -> bytes:
    return meta(
        "subscribed",
        {
            "run_id": reader.run.run_id,
            "status": "running",
            "current_event_count": reader.fold.count,
            "message": f"Subscribed to {kind} run. Receiving live events.",
        },
    )
