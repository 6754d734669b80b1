"""`POST /v1/sessions/{id}/turns/{turn_id}/continue`: what people answer to a turn that waits for them."""

from litestar import Response, post

from domain.commands import ContinueTurn
from domain.ids import CommandKey
from services.gateway import bodies, shapes
from services.gateway.deps import Deps
from services.gateway.names import idempotency_key
from services.gateway.openapi import described
from services.gateway.routes.sessions import SessionRef
from services.gateway.routes.turns import HttpRequest, IdempotencyKey, TurnRef, accepted, trace_of, turn_id_of


@post(
    "/v1/sessions/{session_ref:str}/turns/{turn_ref:str}/continue",
    status_code=202,
    operation_id="continueTurn",
    operation_class=described(
        {202: shapes.ContinuedTurn}, 404, 409, 413, 422, 503, takes=bodies.ContinueTurn
    ),
)  # fmt: skip
async def continue_turn(
    request: HttpRequest, deps: Deps, session_ref: SessionRef, turn_ref: TurnRef, key: IdempotencyKey = None
) -> Response[bytes]:
    """Answer some or all of what a paused turn asks. The first answer to a question counts, an equal repeat is fine;
    the turn goes on once every question has one. An answer with an `item_id` is for that question alone; one without is
    for whatever the turn asks under its `tool_call_id` when it arrives."""
    registration = await deps.authenticator.session(request, session_ref)
    command_key = deps.ids.uuid7() if key is None else idempotency_key(key)
    body = await bodies.read(request, bodies.ContinueTurn)
    turn_id = await turn_id_of(deps, registration.session_id, turn_ref)
    answer = await deps.agent.execute(
        ContinueTurn(
            session_id=registration.session_id,
            key=CommandKey(command_key),
            by=registration.user_id,
            trace=trace_of(request),
            turn_id=turn_id,
            answers={given.tool_call_id: given.answer(registration.user_id) for given in body.answers},
            items={given.tool_call_id: given.item_id for given in body.answers if given.item_id is not None},
        )
    )
    return accepted(answer)
