"""Sessions across the two databases: registered here, opened and closed in the agent service.

Every step can be repeated, and each is done before the next one is noted, so a crash anywhere leaves something that the
same request, or the sweeper, carries on with.
"""

import asyncio
import contextlib
import hashlib

import msgspec
import structlog

from domain.commands import CloseSession, CreateSession, EraseSession
from domain.errors import Rejection, SessionBusy, SessionNotFound, Unavailable
from domain.ids import CommandKey, SessionId
from infra.postgres.registrations import NewRegistration, Owner, PostgresRegistrations, Registration
from infra.postgres.session_copies import PostgresSessionCopies
from services.gateway import bodies, tokens
from services.gateway.agent_client import AgentClient
from services.gateway.deps import GatewayDeps
from services.gateway.refusals import ExternalIdTaken, SessionGone

log = structlog.get_logger("turnlog.gateway")

_encoder = msgspec.json.Encoder(order="deterministic")

# Hints for every gateway with streams of the session; each looks for itself.
_REVOKED = msgspec.json.encode({"reason": "revoked"})
_DELETED = msgspec.json.encode({"reason": "deleted"})

# DELETE is answered at once: what the agent service has not confirmed by then is the sweeper's.
_CLOSE_SECONDS = 2.0


class Created(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a create request, as JSON."""

    session_id: str
    external_id: str | None
    agent_id: str
    session_token: str
    last_sequence: int
    epoch: int


def new_registration(session_id: SessionId, owner: Owner, body: bodies.CreateSession) -> NewRegistration:
    """What a create request asks for; the fingerprint covers all it said."""
    said = _encoder.encode(body.model_dump())
    return NewRegistration(
        session_id=session_id,
        owner=owner,
        agent_id=body.agent_id,
        fingerprint=hashlib.sha256(said).digest(),
        external_id=body.external_id,
        title=body.title,
        context_version=body.context_version,
        metadata=None if body.metadata is None else msgspec.json.encode(body.metadata),
    )


async def create(deps: GatewayDeps, owner: Owner, body: bodies.CreateSession) -> tuple[Created, bool]:
    """The session and a fresh token, which makes any earlier one void; True for the one caller that began it.

    Raises AgentNotFound, ExternalIdTaken, SessionGone, Unavailable. After the latter the same request goes on where
    this one stopped.
    """
    new = new_registration(SessionId(deps.ids.uuid7()), owner, body)
    found, fresh = await deps.registrations.begin(new)
    if found.state == "deleted":
        raise SessionGone(external_id=found.external_id)
    if found.fingerprint != new.fingerprint:
        raise ExternalIdTaken(session_id=found.session_id)
    if found.state == "starting":
        await start(deps.agent, deps.registrations, found)
    token = tokens.mint(found.session_id)
    seconds = deps.settings.gateway.token_seconds
    active = await deps.registrations.activate(found.session_id, tokens.digest(token), seconds)
    if active is None:
        raise SessionGone(external_id=found.external_id)
    heads = await deps.agent.heads([found.session_id])
    head = heads.heads.get(found.session_id)
    if not fresh:
        deps.control(active.session_id, _REVOKED)
    created = Created(
        session_id=active.session_id,
        external_id=active.external_id,
        agent_id=active.agent_id,
        session_token=token,
        last_sequence=0 if head is None else head.last_sequence,
        epoch=heads.epoch,
    )
    return created, fresh


async def start(agent: AgentClient, registrations: PostgresRegistrations, starting: Registration) -> None:
    """Open the session in the agent service; a repeat is the same command. A refusal frees the owner's name again."""
    command = CreateSession(
        session_id=starting.session_id,
        key=CommandKey(f"create:{starting.session_id}"),
        by=starting.user_id,
        agent_id=starting.agent_id,
    )
    try:
        await agent.execute(command)
        if starting.fingerprint == copy_mark(starting.session_id):
            await _copy(agent, registrations, starting)
    except Rejection:
        await registrations.fail(starting.session_id)
        if starting.fingerprint == copy_mark(starting.session_id):
            await _clear(agent, starting)
        raise


def copy_mark(session_id: SessionId) -> bytes:
    """The fingerprint of a registration that is noted as a copy. No request has it."""
    return hashlib.sha256(f"copy\x00{session_id}".encode()).digest()


async def _clear(agent: AgentClient, failed: Registration) -> None:
    """What was copied before it failed, its source erased meanwhile, is not left where nobody can delete it."""
    session_id, by = failed.session_id, failed.user_id
    with contextlib.suppress(Rejection):
        await agent.execute(CloseSession(session_id=session_id, key=CommandKey(f"close:{session_id}"), by=by))
        await agent.execute(EraseSession(session_id=session_id, key=CommandKey(f"erase:{session_id}"), by=by))


async def _copy(agent: AgentClient, registrations: PostgresRegistrations, starting: Registration) -> None:
    made_of = await PostgresSessionCopies(registrations.pool).find(starting.session_id)
    if made_of is None:
        raise SessionNotFound()
    source = await registrations.get(made_of.source_session_id)
    name = (source.external_id if source is not None else None) or made_of.source_session_id
    await agent.copy_session(starting.session_id, made_of.source_session_id, made_of.upto, name)


async def delete(deps: GatewayDeps, registration: Registration, *, erase: bool = False) -> None:
    """From now on the session is gone for everybody but its events stream. Raises SessionNotFound where another caller
    was first."""
    if not await deps.registrations.delete(registration.session_id, erase=erase):
        raise SessionNotFound()
    deps.control(registration.session_id, _DELETED)
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            await close(deps.agent, deps.registrations, registration, CommandKey(deps.ids.uuid7()))
    except (Unavailable, SessionBusy, TimeoutError):
        log.warning("close_left_to_sweeper", session_id=registration.session_id)


async def close(
    agent: AgentClient, registrations: PostgresRegistrations, deleted: Registration, key: CommandKey
) -> None:
    """End a deleted session in the agent service, and erase it where that was asked for; both twice is the same. Raises
    SessionBusy while the turn that ran has not ended: the erase is due again."""
    command = CloseSession(session_id=deleted.session_id, key=key, by=deleted.user_id)
    try:
        await agent.execute(command)
    except SessionNotFound:
        log.warning("closed_session_unknown", session_id=deleted.session_id)
    else:
        if await registrations.erasing(deleted.session_id):
            erase = EraseSession(
                session_id=deleted.session_id, key=CommandKey(f"erase:{deleted.session_id}"), by=deleted.user_id
            )
            await agent.execute(erase)
    await registrations.close(deleted.session_id)
