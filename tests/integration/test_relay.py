"""The relay on a real PostgreSQL and a real broker: what no publisher has sent reaches EVENTS all the same."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats as nats_client
import pytest
from nats.aio.msg import Msg
from nats.js.api import DeliverPolicy
from nats.js.errors import NotFoundError

from domain.commands import EraseSession
from domain.events.envelope import peek
from domain.ids import CommandKey, SessionId
from infra.embedded import EmbeddedNats
from infra.nats.subjects import inbox_prefix, stream_names
from infra.settings import Settings
from tests.support.databases import Database
from tests.support.relaying import projector, relay_settings, session_of
from tests.support.stand import open_pipeline
from tests.support.waiting import eventually


@pytest.fixture
async def settings(database: Database, nats: EmbeddedNats) -> Settings:
    return await relay_settings(database, nats)


@asynccontextmanager
async def consumer(nats: EmbeddedNats) -> AsyncIterator[list[tuple[str, int]]]:
    """An outside consumer of EVENTS: what it has got, as (session, sequence)."""
    user, password = nats.credentials("operator")
    client = await nats_client.connect(
        nats.url, user=user, password=password, inbox_prefix=inbox_prefix("turnlog", "operator").encode()
    )
    got: list[tuple[str, int]] = []

    async def subscribe() -> bool:
        async def take(message: Msg) -> None:
            got.append((message.subject.split(".")[2], peek(message.data).sequence))

        try:
            stream = stream_names("turnlog")[0]
            await client.jetstream().subscribe(
                "turnlog.session.*.event",
                stream=stream,
                ordered_consumer=True,
                deliver_policy=DeliverPolicy.ALL,
                cb=take,
            )
        except NotFoundError:
            return False
        return True

    try:
        await eventually(subscribe, "the stream EVENTS is there")
        yield got
    finally:
        await client.close()


async def test_what_nobody_published_is_published_by_the_relay(settings: Settings, nats: EmbeddedNats) -> None:
    async with open_pipeline(settings.dsn("agent")) as pipeline, projector(settings), consumer(nats) as got:
        one, two = await session_of(pipeline, 3), await session_of(pipeline, 2)
        expected = {(one, n) for n in range(1, 5)} | {(two, n) for n in range(1, 4)}

        async def all_there() -> bool:
            return expected <= set(got)

        await eventually(all_there, "every committed event is in EVENTS")
        assert set(got) == expected
        assert len(got) == len(expected)


async def test_it_goes_on_where_it_was(settings: Settings, nats: EmbeddedNats) -> None:
    """What was committed while no projector ran is not passed over."""
    async with open_pipeline(settings.dsn("agent")) as pipeline:
        async with projector(settings), consumer(nats) as got:
            first = await session_of(pipeline, 1)

            async def first_there() -> bool:
                return {(first, 1), (first, 2)} <= set(got)

            await eventually(first_there, "the first session is in EVENTS")
        second = await session_of(pipeline, 1)
        async with projector(settings), consumer(nats) as got:

            async def second_there() -> bool:
                return {(second, 1), (second, 2)} <= set(got)

            await eventually(second_there, "the second session is in EVENTS")
            assert sorted(got) == sorted([(first, 1), (first, 2), (second, 1), (second, 2)])


async def test_what_the_broker_keeps_of_an_erased_session_goes(settings: Settings, nats: EmbeddedNats) -> None:
    user, password = nats.credentials("operator")
    inbox = inbox_prefix("turnlog", "operator").encode()
    client = await nats_client.connect(nats.url, user=user, password=password, inbox_prefix=inbox)

    async def kept(session: SessionId) -> int:
        subject = f"turnlog.session.{session}.event"
        info = await client.jetstream().stream_info(stream_names("turnlog")[0], subjects_filter=subject)
        return (info.state.subjects or {}).get(subject, 0)

    async with open_pipeline(settings.dsn("agent")) as pipeline, projector(settings), consumer(nats) as got:
        gone, stays = await session_of(pipeline, 0), await session_of(pipeline, 1)

        async def there() -> bool:
            return (gone, 1) in got and (stays, 2) in got

        await eventually(there, "the events are in EVENTS")
        assert await kept(gone) == 1
        await pipeline.execute(EraseSession(session_id=gone, key=CommandKey("erase")))

        async def purged() -> bool:
            return (gone, 2) in got and await kept(gone) == 0

        await eventually(purged, "the erased session's subject is empty")
        assert await kept(stays) == 2
    await client.close()
