"""`…/runs/{run_id}/continue`: answer what a paused run asks, or go on from a run that is over."""

from typing import Any

import msgspec
from litestar import Response, post
from litestar.params import FromPath

from domain.commands import ContinueTurn
from domain.errors import (
    AnswerConflict,
    RequirementExpired,
    SessionNotFound,
    TurnNotFound,
    TurnNotPaused,
    UnknownRequirement,
)
from domain.ids import CommandKey, TurnId
from domain.parts import Answer
from services.gateway.dialects.agentos.answers import Refused, json_answer
from services.gateway.dialects.agentos.branching import Branch, branch_of, branched
from services.gateway.dialects.agentos.decisions import FIELD, answers_of, check_shape, open_names
from services.gateway.dialects.agentos.finding import Finder, Found
from services.gateway.dialects.agentos.forms import HttpRequest, read_form
from services.gateway.dialects.agentos.objects import run_object
from services.gateway.dialects.agentos.reader import RunReader
from services.gateway.dialects.agentos.routes.common import Find, IdempotencyKey, paths
from services.gateway.dialects.agentos.starting import Wishes, answer, conflict
from services.gateway.names import idempotency_key
from services.gateway.routes.turns import trace_of

_NOTHING = Branch("end", False, False, None, None, None)


@post(paths("/runs/{run_id:str}/continue"), status_code=200)
async def continue_run(
    request: HttpRequest, finder: Find, component_id: FromPath[str], run_id: FromPath[str], key: IdempotencyKey = None
) -> Response[Any]:
    """The first decision on a question counts, an equal repeat is fine; a run that is over stays as it is, and what
    goes on from it is a new one."""
    form = await read_form(request)
    wishes = Wishes.of(form)
    component = await finder.component(request, component_id)
    entries = form.array(FIELD[component.kind])
    branch = _NOTHING if component.kind == "workflow" else branch_of(form)
    if entries is not None:
        check_shape(component.kind, entries)
    session = form.text("session_id")
    if session is None:
        raise Refused(400, "session_id is required for this action")
    command_key = finder.deps.ids.uuid7() if key is None else idempotency_key(key)
    try:
        found = await finder.run(request, component, run_id, session)
    except (SessionNotFound, TurnNotFound) as error:
        words = "Run not found" if component.kind == "workflow" else f"No runs found for run ID {run_id}"
        raise Refused(404, words) from error
    reader = await finder.read(found)
    if reader.run.wire_status == "CANCELLED" and component.kind != "workflow":
        raise conflict(run_id, "cancelled")
    over = component.kind == "workflow" and reader.run.terminal
    if not branch.wanted and not over and (entries or reader.run.waits):
        settled = await _answered(finder, request, found, reader, entries or [], command_key, wishes, key is not None)
        if settled is not None:
            return settled
    elif reader.run.status == "paused":
        raise Refused(409, f"Cannot continue run {run_id}: run is paused; answer its questions, or cancel it")
    return await _gone_on(finder, request, found, reader, branch, command_key, wishes)


async def _answered(
    finder: Finder,
    request: HttpRequest,
    found: Found,
    reader: RunReader,
    entries: list[dict[str, Any]],
    key: str,
    wishes: Wishes,
    keyed: bool,
) -> Response[Any] | None:
    """The run with those decisions; None where it asked nothing of the kind and is over."""
    run, kind = reader.run, found.component.kind
    given = answers_of(kind, run.requirements, entries)
    if run.waits:
        _complete(run.run_id, kind, open_names(run.requirements, given))
    elif not given:
        return None
    paused_at = _last_pause(reader)
    try:
        if given:
            # The repeat of a key is answered by what the first one did, whatever the run asks by then.
            items = {} if keyed else {r.tool_call_id: r.item_id for r in run.requirements if r.item_id is not None}
            await _send(finder, request, found, given, {call: items[call] for call in given if call in items}, key)
    except TurnNotPaused as error:
        if run.terminal:
            return None
        raise conflict(run.run_id, run.wire_status) from error
    except (AnswerConflict, RequirementExpired, UnknownRequirement) as error:
        raise Refused(409, f"Cannot continue run {run.run_id}: {error.detail}") from error
    loaded = await reader.load()
    if run.waits:
        # Some of a team's questions are open still: it stays paused, and says which.
        if not wishes.stream:
            return json_answer(run_object(run, reader.fold.events))
        paused_at -= 1
    seen = [*reader.fold.events_after(paused_at), *loaded] if run.waits else loaded
    if not seen and run.terminal:
        # An equal repeat, and the run has ended meanwhile.
        seen = await _again(finder, found)
    return await answer(finder, found.access, reader, seen, wishes, after=paused_at, pending=False, with_events=True)


async def _again(finder: Finder, found: Found) -> list[dict[str, Any]]:
    """All events of the run, pieces of texts included."""
    reader = finder.reader(found.component, found.registration, found.turn)
    return await reader.load()


def _complete(run_id: str, kind: str, still_open: list[str]) -> None:
    """A missing decision is no decision. Raises Refused."""
    if not still_open or kind == "team":
        return
    what = "step requirements" if kind == "workflow" else "tools"
    raise Refused(400, f"Cannot continue run - unresolved {what}: {still_open}")


async def _send(
    finder: Finder, request: HttpRequest, found: Found, given: dict[str, Answer], items: dict[str, str], key: str
) -> None:
    """`items`: what was asked when the caller's decisions were read; a later question under the same id stays open."""
    registration = found.registration
    by = registration.user_id
    stamped = {call: msgspec.structs.replace(one, by=by) for call, one in given.items()}
    command = ContinueTurn(
        session_id=registration.session_id,
        key=CommandKey(key),
        by=by,
        trace=trace_of(request),
        turn_id=TurnId(found.turn.turn_id),
        answers=stamped,
        items=items,
    )
    await finder.deps.agent.execute(command)


def _last_pause(reader: RunReader) -> int:
    """The index of the last event of the newest pause; -1 where there was none."""
    name = {"agent": "RunPaused", "team": "TeamRunPaused", "workflow": "WorkflowPaused"}[reader.run.component.kind]
    mine = reader.run.run_id
    found = [e["event_index"] for e in reader.fold.events if e["event"] == name and e.get("run_id") == mine]
    return found[-1] if found else -1


async def _gone_on(
    finder: Finder,
    request: HttpRequest,
    found: Found,
    reader: RunReader,
    branch: Branch,
    key: str,
    wishes: Wishes,
) -> Response[Any]:
    run = reader.run
    if found.component.kind == "workflow" and run.terminal:
        raise Refused(
            409, "run is failed" if run.wire_status == "ERROR" else f"run is already {run.wire_status.lower()}"
        )
    if not run.terminal:
        raise conflict(run.run_id, run.wire_status)
    new, loaded = await branched(finder, request, found, run, branch, key)
    team = found.component.kind == "team"
    return await answer(finder, found.access, new, loaded, wishes, pending=False, with_events=team)
