"""`turnlog erase`: what people and agents wrote in a session goes, for good."""

import asyncio
import sys

import msgspec

from domain.commands import EraseSession
from domain.errors import SessionBusy, SessionNotFound
from domain.ids import CommandKey, SessionId, is_uuid
from domain.replies import SessionReply
from infra.memory.notifier import MemoryNotifier
from infra.postgres.feed_slots import PostgresFeedSlots
from infra.postgres.pool import create_pool
from infra.settings import Settings, load
from infra.system import SystemIds
from services.cli.agent_database import agent_database, database_in_use
from services.cli.failures import FINE, CannotRun, say
from services.wiring import open_pipeline_on

_FOLLOW_SECONDS = 10.0
_LOOK_SECONDS = 0.2


def erase(session: str) -> int:
    """Remove payloads, private parts, messages, kept replies, attachments and searchable text of a session, for good.

    Ids, numbers, statuses, digests and the hash chain stay, so that the audit stays clean and says what was erased. The
    session must be idle: nothing runs and nothing waits. The gateway's title and metadata go with
    DELETE /v1/sessions/ID?erase=true.

    Parameters
    ----------
    session
        The session's id.
    """
    if not is_uuid(session):
        raise CannotRun("SESSION is the id of a session (a UUID), not its external id")
    with database_in_use():
        sequence, followed = asyncio.run(_erase(load(), SessionId(session)))
    sys.stdout.write(f"erased up to sequence {sequence - 1}; session.erased is {sequence}\n")
    if not followed:
        say("no projector has followed yet: searchable text goes when one runs")
    return FINE


async def _erase(settings: Settings, session_id: SessionId) -> tuple[int, bool]:
    # Nobody is told from here: the relay publishes what was committed, and empties the broker's streams.
    async with open_pipeline_on(settings, agent_database(settings, "agent"), MemoryNotifier()) as pipeline:
        key = CommandKey(f"erase:{SystemIds().uuid7()}")
        try:
            outcome = await pipeline.execute(EraseSession(session_id=session_id, key=key, by="operator"))
        except SessionNotFound as error:
            raise CannotRun(f"there is no session {session_id}") from error
        except SessionBusy as error:
            raise CannotRun("a turn of the session runs or waits: cancel or interrupt it first") from error
    reply = msgspec.json.decode(outcome.reply, type=SessionReply)
    return reply.sequence, await _followed(settings)


async def _followed(settings: Settings) -> bool:
    """Wait until every projection that runs has passed the present end of the feed."""
    pool = await create_pool(agent_database(settings), size=1)
    try:
        slots, left = PostgresFeedSlots(pool), 1
        for _ in range(int(_FOLLOW_SECONDS / _LOOK_SECONDS)):
            served = [state for state in await slots.states() if state.slot == "serving"]
            left = sum(state.lag_events for state in served)
            if not left or not any(state.running for state in served):
                break
            await asyncio.sleep(_LOOK_SECONDS)
        return left == 0
    finally:
        await pool.close()
