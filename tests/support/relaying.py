"""What tests of the relay need: a projector, and pipelines that commit and tell nobody."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from domain.commands import CreateSession, SubmitTurn
from domain.ids import CommandKey, SessionId, TurnId
from domain.parts import TextPart
from infra.embedded import EmbeddedNats
from infra.pipeline.pipeline import Pipeline
from infra.settings import Settings, load
from infra.system import SystemIds
from services.projector.main import run
from tests.support.databases import Database

PATIENCE = 0.3
"""Seconds after which the relay takes an event's publisher for dead."""


async def relay_settings(database: Database, nats: EmbeddedNats) -> Settings:
    """A projector on these servers, and the agent role's database."""
    return load(
        postgres={
            "projector": await database.dsn_of("turnlog_projector"),
            "agent": await database.dsn_of("turnlog_agent"),
        },
        nats={"urls": (nats.url,), "projector_password": nats.credentials("projector")[1]},
        projector={"relay_seconds": PATIENCE, "poll_seconds": 0.05},
    )


@asynccontextmanager
async def projector(settings: Settings) -> AsyncIterator[None]:
    """The real role, in this process."""
    running = asyncio.create_task(run(settings))
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def session_of(pipeline: Pipeline, turns: int) -> SessionId:
    ids = SystemIds()
    session = SessionId(ids.uuid7())
    await pipeline.execute(CreateSession(session_id=session, key=CommandKey("create"), agent_id="a"))
    for number in range(turns):
        await pipeline.execute(
            SubmitTurn(
                session_id=session,
                key=CommandKey(f"k{number}"),
                turn_id=TurnId(ids.uuid7()),
                input=[TextPart(text="x")],
            )
        )
    return session
