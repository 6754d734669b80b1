"""What an outside consumer of EVENTS may rely on: a plain durable JetStream consumer gets every committed event at
least once, as long as it is never further behind than EVENTS keeps; who was away for longer sees the jump and reads
the log."""

import asyncio
import os
import shutil
import sys
from contextlib import suppress

import pytest
from nats.js.api import StreamConfig
from nats.js.errors import NotFoundError

from domain.ids import Sequence, SessionId
from infra.embedded import EmbeddedNats
from infra.nats.subjects import stream_names
from infra.postgres.pool import create_pool
from infra.postgres.store import PostgresEventStore
from infra.settings import Settings
from infra.system import SystemIds
from tests.support.databases import Database
from tests.support.dying_publisher import DEATH
from tests.support.outsider import Outsider
from tests.support.relaying import projector, relay_settings, session_of
from tests.support.stand import open_pipeline
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
async def settings(database: Database, nats: EmbeddedNats) -> Settings:
    return await relay_settings(database, nats)


async def all_got(outsider: Outsider, lasts: dict[SessionId, int]) -> None:
    """Wait until the outsider has 1..last of each session."""

    async def complete() -> bool:
        return all(outsider.of(session) == set(range(1, last + 1)) for session, last in lasts.items())

    await eventually(complete, "the consumer has every event", timeout=30)


async def test_a_publisher_that_died_between_commit_and_publish(settings: Settings, nats: EmbeddedNats) -> None:
    """A process of its own commits and is gone before it says so."""
    session = SessionId(SystemIds().uuid7())
    environment = os.environ | {"TURNLOG_TEST_DSN": settings.dsn("agent")}
    died = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.dying_publisher", session, env=environment
    )
    assert await died.wait() == DEATH
    async with projector(settings), Outsider(nats).listening() as outsider:
        await all_got(outsider, {session: 1})


async def test_the_broker_lost_what_the_consumer_had_not_read(settings: Settings, nats: EmbeddedNats) -> None:
    """Published, not consumed, and then everything on the broker is gone, the consumer's place as well; the relay's own
    place lies behind all of it. Once with the projector running, once while it was away."""
    outsider = Outsider(nats)
    async with open_pipeline(settings.dsn("agent")) as pipeline:
        async with projector(settings):
            async with outsider.listening():
                read = await session_of(pipeline, 2)
                await all_got(outsider, {read: 3})
            unread = await session_of(pipeline, 3)
            await stored(outsider, 7)
            await nats.stop()
            shutil.rmtree(nats.store)
            await nats.start()
            async with outsider.listening():
                await all_got(outsider, {read: 3, unread: 4})
            missed = await session_of(pipeline, 1)
            await stored(outsider, 9)
        await nats.stop()
        shutil.rmtree(nats.store)
        await nats.start()
        async with projector(settings), outsider.listening():
            await all_got(outsider, {read: 3, unread: 4, missed: 2})


async def test_who_was_away_for_longer_than_events_are_kept_reads_the_log(
    settings: Settings, nats: EmbeddedNats
) -> None:
    """The limits of the stream are reached: its oldest go. The sequences tell the consumer, and the log has it all."""
    outsider = Outsider(nats)
    async with open_pipeline(settings.dsn("agent")) as pipeline, projector(settings):
        async with outsider.listening():
            session = await session_of(pipeline, 0)
            await all_got(outsider, {session: 1})
        async with outsider.connected() as client:
            events = stream_names("turnlog")[0]
            now = (await client.jetstream().stream_info(events)).config
            await client.jetstream().update_stream(StreamConfig(**{**now.__dict__, "max_msgs": 5}))
        long = await session_of(pipeline, 19)
        await last_stored(outsider, long, 20)
        async with outsider.listening():

            async def newest() -> bool:
                return 20 in outsider.of(long)

            await eventually(newest, "the newest event is there", timeout=30)
    lost = outsider.holes(long)
    assert lost, "the jump shows"
    assert set(lost) | outsider.of(long) == set(range(1, 21))
    pool = await create_pool(settings.dsn("agent"), size=1)
    try:
        page = await PostgresEventStore(pool).page(long, Sequence(lost[0] - 1), 1 << 20, len(lost))
    finally:
        await pool.close()
    assert [event.sequence for event in page.events] == lost


async def stored(outsider: Outsider, count: int) -> None:
    """Wait until EVENTS holds so many."""
    async with outsider.connected() as client:

        async def there() -> bool:
            return bool((await client.jetstream().stream_info(stream_names("turnlog")[0])).state.messages >= count)

        await eventually(there, f"EVENTS holds {count}", timeout=30)


async def last_stored(outsider: Outsider, session: SessionId, sequence: int) -> None:
    """Wait until EVENTS has that one."""
    async with outsider.connected() as client:

        async def there() -> bool:
            with suppress(NotFoundError):  # not one of that session yet
                newest = await client.jetstream().get_last_msg(
                    stream_names("turnlog")[0], f"turnlog.session.{session}.event"
                )
                return (newest.headers or {}).get("Nats-Msg-Id") == f"{session}:{sequence}"
            return False

        await eventually(there, f"EVENTS has {sequence}", timeout=30)
