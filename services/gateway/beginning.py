"""Commands that begin a turn, within what their user may: so many a minute, so many open at once.

A key that is known gets its first answer whatever these say, and costs nothing: only the store knows keys, so it is
asked even when nothing new may begin.
"""

import hashlib
import uuid

import msgspec
import structlog

from domain.commands import ForkTurn, RegenerateTurn, SubmitTurn
from domain.errors import NotAdmitted
from infra.postgres.registrations import Owner
from services.gateway.agent_client import CommandAnswer
from services.gateway.deps import GatewayDeps
from services.gateway.rates import RateLimited


class _Said(msgspec.Struct, frozen=True):
    turn_id: str
    sequence: int


_decode = msgspec.json.Decoder(_Said).decode

Begin = SubmitTurn | ForkTurn | RegenerateTurn


def owner_key(owner: Owner) -> str:
    """By what the store tells owners apart; it needs no names."""
    named = msgspec.json.encode([owner.workspace_id, owner.user_id])
    return str(uuid.UUID(bytes=hashlib.sha256(named).digest()[:16]))


async def begin(deps: GatewayDeps, owner: Owner, command: Begin, *, keyed: bool) -> CommandAnswer:
    """The command's answer. `keyed`: the caller chose the key, so it may be known. Raises RateLimited, TooManyTurns and
    what `AgentClient.execute` raises."""
    answer = await _begun(deps, owner, command, keyed)
    said = _decode(answer.reply)
    structlog.contextvars.bind_contextvars(turn=said.turn_id, sequence=said.sequence)
    return answer


async def _begun(deps: GatewayDeps, owner: Owner, command: Begin, keyed: bool) -> CommandAnswer:
    if deps.authenticator.off:  # one person on loopback is their own limit
        return await deps.agent.execute(command)
    try:
        deps.rates.take(owner)
    except RateLimited as limited:
        if not keyed:
            raise
        return await _known(deps, owner, command, limited)
    answer = await deps.agent.execute(msgspec.structs.replace(command, owner=owner_key(owner)))
    if keyed and answer.replayed:
        deps.rates.give_back(owner)
    return answer


async def _known(deps: GatewayDeps, owner: Owner, command: Begin, limited: RateLimited) -> CommandAnswer:
    # Asking is work, too: as often as turns may begin, once more.
    try:
        deps.repeats.take(owner)
    except RateLimited:
        raise limited from None
    try:
        return await deps.agent.execute(msgspec.structs.replace(command, admitted=False))
    except NotAdmitted:
        raise limited from None
