"""Checkpoints of a turn, and new turns whose history ends inside another one: fork and regenerate."""

from litestar import Response, get, post

from domain.commands import ForkTurn, RegenerateTurn
from domain.ids import CommandKey, TurnId
from services.gateway import bodies, shapes
from services.gateway.beginning import begin
from services.gateway.deps import Deps
from services.gateway.names import idempotency_key
from services.gateway.openapi import described
from services.gateway.routes.sessions import SessionRef
from services.gateway.routes.turns import HttpRequest, IdempotencyKey, TurnRef, accepted, trace_of, turn_id_of


@get(
    "/v1/sessions/{session_ref:str}/turns/{turn_ref:str}/checkpoints",
    operation_id="listCheckpoints",
    operation_class=described({200: shapes.Checkpoint}, 404, 503, many=True),
)
async def list_checkpoints(
    request: HttpRequest, deps: Deps, session_ref: SessionRef, turn_ref: TurnRef
) -> Response[bytes]:
    """Places of the turn, oldest first. One can fork from those after a batch of tools and at the end."""
    registration = await deps.authenticator.session(request, session_ref)
    turn_id = await turn_id_of(deps, registration.session_id, turn_ref)
    content = await deps.agent.read(f"/sessions/{registration.session_id}/turns/{turn_id}/checkpoints")
    return Response(content, media_type="application/json")


@post(
    "/v1/sessions/{session_ref:str}/turns/{turn_ref:str}/fork",
    status_code=202,
    operation_id="forkTurn",
    operation_class=described({202: shapes.BranchedTurn}, 404, 409, 413, 422, 429, 503, takes=bodies.ForkTurn),
)
async def fork_turn(
    request: HttpRequest, deps: Deps, session_ref: SessionRef, turn_ref: TurnRef, key: IdempotencyKey = None
) -> Response[bytes]:
    """Accept a new turn that knows this one up to a place of it, and nothing that came after. It waits in the queue
    like any other; turns after it go on from it."""
    registration = await deps.authenticator.session(request, session_ref)
    command_key = deps.ids.uuid7() if key is None else idempotency_key(key)
    body = await bodies.read(request, bodies.ForkTurn)
    source = await turn_id_of(deps, registration.session_id, turn_ref)
    answer = await begin(
        deps,
        registration.owner,
        ForkTurn(
            session_id=registration.session_id,
            key=CommandKey(command_key),
            by=registration.user_id,
            trace=trace_of(request),
            turn_id=TurnId(deps.ids.uuid7()),
            source_turn_id=source,
            place=str(body.place),
            input=body.parts(),
            context_version=registration.context_version,
        ),
        keyed=key is not None,
    )
    return accepted(answer)


@post(
    "/v1/sessions/{session_ref:str}/turns/{turn_ref:str}/regenerate",
    status_code=202,
    operation_id="regenerateTurn",
    operation_class=described({202: shapes.BranchedTurn}, 404, 409, 413, 422, 429, 503, takes=bodies.RegenerateTurn),
)
async def regenerate_turn(
    request: HttpRequest, deps: Deps, session_ref: SessionRef, turn_ref: TurnRef, key: IdempotencyKey = None
) -> Response[bytes]:
    """Run the input of a turn that has ended once more, in its place of the history. The old turn is marked as
    superseded when the new one completes, unless it shall stand beside it."""
    registration = await deps.authenticator.session(request, session_ref)
    command_key = deps.ids.uuid7() if key is None else idempotency_key(key)
    body = await bodies.read_wishes(request, bodies.RegenerateTurn)
    source = await turn_id_of(deps, registration.session_id, turn_ref)
    answer = await begin(
        deps,
        registration.owner,
        RegenerateTurn(
            session_id=registration.session_id,
            key=CommandKey(command_key),
            by=registration.user_id,
            trace=trace_of(request),
            turn_id=TurnId(deps.ids.uuid7()),
            source_turn_id=source,
            replace_original=body.replace_original,
            additional_instructions=body.additional_instructions,
            context_version=registration.context_version,
        ),
        keyed=key is not None,
    )
    return accepted(answer)
