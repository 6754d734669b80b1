"""`/v1/sessions/{id}/turns`: submit, list, look at, cancel and interrupt turns."""

import re
from typing import Annotated
from urllib.parse import quote

import msgspec
from litestar import Request, Response, get, post
from litestar.datastructures import State
from litestar.params import FromQuery, HeaderParameter, PathParameter, QueryParameter

from domain.commands import CancelTurn, InterruptTurn, SubmitTurn
from domain.errors import TurnNotFound
from domain.ids import CommandKey, SessionId, TurnId
from services.gateway import bodies, shapes
from services.gateway.agent_client import CommandAnswer
from services.gateway.beginning import begin
from services.gateway.deps import Deps, GatewayDeps
from services.gateway.names import external_id_fault, idempotency_key
from services.gateway.openapi import described
from services.gateway.routes.sessions import SessionRef

HttpRequest = Request[object, object, State]

TurnRef = Annotated[str, PathParameter(description="The turn's id, or the id its submitter chose")]
IdempotencyKey = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        description="1-255 printable ASCII characters. Without it a client's retry is a new turn.",
        schema_extra={"minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
    ),
]

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class _Named(msgspec.Struct):
    turn_id: str


def trace_of(request: HttpRequest) -> str | None:
    """The sender's W3C traceparent, if it is one."""
    sent = request.headers.get("traceparent", "")
    return sent if _TRACEPARENT.fullmatch(sent) else None


async def turn_json(deps: GatewayDeps, session_id: SessionId, turn_ref: str) -> bytes:
    """The turn of that id, or of that caller-chosen id. Raises TurnNotFound."""
    if external_id_fault(turn_ref) is not None:
        raise TurnNotFound()
    return await deps.agent.read(f"/sessions/{session_id}/turns/{quote(turn_ref, safe='')}")


async def turn_id_of(deps: GatewayDeps, session_id: SessionId, turn_ref: str) -> TurnId:
    """Raises TurnNotFound."""
    return TurnId(msgspec.json.decode(await turn_json(deps, session_id, turn_ref), type=_Named).turn_id)


def accepted(answer: CommandAnswer) -> Response[bytes]:
    """The 202 of a command that may be repeated with its key."""
    headers = {"Idempotency-Replayed": "true"} if answer.replayed else {}
    return Response(answer.reply, status_code=202, media_type="application/json", headers=headers)


@post(
    "/v1/sessions/{session_ref:str}/turns",
    status_code=202,
    operation_id="submitTurn",
    operation_class=described(
        {202: shapes.QueuedTurn}, 404, 409, 413, 422, 429, 503, takes=bodies.SubmitTurn
    ),
)  # fmt: skip
async def submit_turn(
    request: HttpRequest, deps: Deps, session_ref: SessionRef, key: IdempotencyKey = None
) -> Response[bytes]:
    """Accept an input as a queued turn. It is committed before this answers; watch the events stream for the rest."""
    registration = await deps.authenticator.session(request, session_ref)
    command_key = deps.ids.uuid7() if key is None else idempotency_key(key)
    body = await bodies.read(request, bodies.SubmitTurn)
    answer = await begin(
        deps,
        registration.owner,
        SubmitTurn(
            session_id=registration.session_id,
            key=CommandKey(command_key),
            by=registration.user_id,
            trace=trace_of(request),
            turn_id=TurnId(deps.ids.uuid7()),
            input=body.parts(),
            if_busy=body.if_busy,
            context_version=registration.context_version,
        ),
        keyed=key is not None,
    )
    return accepted(answer)


@get(
    "/v1/sessions/{session_ref:str}/turns",
    operation_id="listTurns",
    operation_class=described({200: shapes.TurnList}, 400, 404, 422, 503),
)
async def list_turns(
    request: HttpRequest,
    deps: Deps,
    session_ref: SessionRef,
    status: FromQuery[shapes.TurnStatus | None] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=200)] = 50,
    cursor: FromQuery[str | None] = None,
) -> Response[bytes]:
    """The session's turns, newest first."""
    registration = await deps.authenticator.session(request, session_ref)
    asked = {"limit": str(limit), "status": status, "cursor": cursor}
    query = {name: value for name, value in asked.items() if value is not None}
    content = await deps.agent.read(f"/sessions/{registration.session_id}/turns", query)
    return Response(content, media_type="application/json")


@get(
    "/v1/sessions/{session_ref:str}/turns/{turn_ref:str}",
    operation_id="getTurn",
    operation_class=described({200: shapes.Turn}, 404, 503),
)
async def get_turn(request: HttpRequest, deps: Deps, session_ref: SessionRef, turn_ref: TurnRef) -> Response[bytes]:
    """One turn."""
    registration = await deps.authenticator.session(request, session_ref)
    return Response(await turn_json(deps, registration.session_id, turn_ref), media_type="application/json")


@post(
    "/v1/sessions/{session_ref:str}/turns/{turn_ref:str}/cancel",
    status_code=200,
    operation_id="cancelTurn",
    operation_class=described({200: shapes.Turn}, 404, 409, 503),
)
async def cancel_turn(request: HttpRequest, deps: Deps, session_ref: SessionRef, turn_ref: TurnRef) -> Response[bytes]:
    """End a queued or paused turn; a running one is stopped by interrupt."""
    registration = await deps.authenticator.session(request, session_ref)
    turn_id = await turn_id_of(deps, registration.session_id, turn_ref)
    await deps.agent.execute(
        CancelTurn(
            session_id=registration.session_id,
            key=CommandKey(deps.ids.uuid7()),
            by=registration.user_id,
            trace=trace_of(request),
            turn_id=turn_id,
        )
    )
    return Response(await turn_json(deps, registration.session_id, turn_id), media_type="application/json")


@post(
    "/v1/sessions/{session_ref:str}/turns/{turn_ref:str}/interrupt",
    status_code=202,
    operation_id="interruptTurn",
    operation_class=described({202: shapes.InterruptedTurn}, 404, 409, 503),
)
async def interrupt_turn(
    request: HttpRequest, deps: Deps, session_ref: SessionRef, turn_ref: TurnRef
) -> Response[bytes]:
    """Ask the running turn to stop; its end is an event. Asking twice is one intent."""
    registration = await deps.authenticator.session(request, session_ref)
    turn_id = await turn_id_of(deps, registration.session_id, turn_ref)
    answer = await deps.agent.execute(
        InterruptTurn(
            session_id=registration.session_id,
            key=CommandKey(deps.ids.uuid7()),
            by=registration.user_id,
            trace=trace_of(request),
            turn_id=turn_id,
        )
    )
    return Response(answer.reply, status_code=202, media_type="application/json")
