"""`POST /internal/commands`: what gateways want done."""

import msgspec
from litestar import Request, Response, post
from litestar.datastructures import State
from litestar.exceptions import ClientException

from domain.checkpoints import snapped
from domain.commands import ClientCommand, CreateSession, ForkTurn
from domain.errors import AgentNotFound
from services.agent.deps import AgentDeps, Deps

_decoder: msgspec.json.Decoder[ClientCommand] = msgspec.json.Decoder(ClientCommand)


async def _with_component(deps: AgentDeps, command: CreateSession) -> CreateSession:
    """The command with the component that its agent is. Only a session that is not there yet needs its agent in the
    catalogue: a repeat is answered whatever has become of it. Raises AgentNotFound."""
    heads = await deps.store.heads([command.session_id])
    if command.session_id in heads:
        return msgspec.structs.replace(command, component=heads[command.session_id].component)
    for agent in await deps.catalogue.agents():
        if agent.agent_id == command.agent_id:
            return msgspec.structs.replace(command, component=agent.component)
    raise AgentNotFound(agent_id=command.agent_id)


async def _snapped(deps: AgentDeps, command: ForkTurn) -> ForkTurn:
    """The command with its place moved down to one that a history may end at. Raises TurnNotFound, ForkOutOfRange."""
    source, _ = await deps.read_models.turn(command.session_id, command.source_turn_id)
    events = await deps.history.turn_events(command.session_id, source.turn_id)
    return msgspec.structs.replace(command, sequence=snapped(source, events, int(command.place)))


@post("/internal/commands", status_code=200)
async def execute(request: Request[object, object, State], deps: Deps) -> Response[bytes]:
    """Run one command; 200 is committed. A repeat of its key gets the first reply, marked as replayed."""
    try:
        command = _decoder.decode(await request.body())
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        # A gateway of another version, perhaps: the client asks another agent process.
        raise ClientException() from error
    if isinstance(command, CreateSession):
        command = await _with_component(deps, command)
    elif isinstance(command, ForkTurn) and command.place.isdecimal():
        command = await _snapped(deps, command)
    outcome = await deps.pipeline.execute(command, deadline=deps.clock.monotonic() + deps.command_seconds)
    headers = {"Turnlog-Replayed": "true" if outcome.replayed else "false"}
    return Response(outcome.reply, media_type="application/json", headers=headers)
