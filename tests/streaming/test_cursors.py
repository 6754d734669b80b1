"""A cursor belongs to one session for ever (R08, centrifuge-go#160), and whatever else is sent as one is told so."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from infra.embedded import EmbeddedNats, EmbeddedPostgres
from infra.postgres.sql import statements
from tests.support.databases import Databases
from tests.support.delivery import DeliveryStand, delivery_stand
from tests.support.gateways import AGENT
from tests.support.sse import assert_gapless
from tests.support.streaming import FakeBroker, Log, stream_gateway, watching

S = "session"


@pytest.fixture
async def stand(databases: Databases, nats: EmbeddedNats) -> AsyncIterator[DeliveryStand]:
    async with delivery_stand(databases, nats, gateways=2) as made:
        yield made


async def test_r08_an_old_cursor_never_meets_another_sessions_events(stand: DeliveryStand) -> None:
    ann = stand.client()
    body = {"agent_id": AGENT, "external_id": "gone"}
    writer = await stand.session(external_id="gone")
    await writer.start()
    stream = await ann.stream("gone", 0).opened()
    await stream.sequence(3)
    await ann.json("DELETE", "/v1/sessions/gone", status=204)
    await writer.finish("interrupted")
    await stream.end()
    assert (await ann.json("POST", "/v1/sessions", body, status=410))["code"] == "session_gone"
    # The name and the id lead to what is left of that session and to nothing else, at every gateway.
    for gateway in (0, 1):
        client = stand.client(gateway)
        for name in ("gone", writer.session):
            left = client.stream(name, 3)
            await left.end()
            assert left.ids == stream.ids[3:]
            assert (await client.stream(name, stream.last_id).opened()).status == 204
            assert (await stand.client(gateway, user="bob").stream(name, 3).opened()).status == 404
    # In another session the same number is another place, or none: it is told, never taken for a success.
    other = await stand.session()
    stranger = await ann.stream(other.session, stream.last_id).opened()
    assert (await stranger.event("stream.resync")).json == {"reason": "beyond_head", "last_sequence": 1}
    await other.start()
    await stranger.sequence(3)
    assert stranger.ids == [2, 3]


async def test_r08_a_restored_store_shows_another_epoch(stand: DeliveryStand, postgres: EmbeddedPostgres) -> None:
    """By the statement of `turnlog restore-stamp`."""
    writer = await stand.session()
    await writer.start()
    ann = stand.client()
    stream = await ann.stream(writer.session, 0).opened()
    assert stream.frames[0].json["epoch"] == 1
    dsn = stand.settings.postgres.agent
    assert dsn is not None
    name = dsn.get_secret_value().rpartition("/")[2].partition("?")[0]
    connection = await asyncpg.connect(postgres.superuser_dsn, database=name)
    assert await connection.fetchval(statements("erase")["stamp"]) == 2
    await connection.close()
    await stream.end(timeout=15)
    assert stream.frames[-1].event == "stream.closing"
    for gateway in (0, 1):
        again = await stand.client(gateway).stream(writer.session, stream.last_id).opened()
        assert again.frames[0].json["epoch"] == 2
        await again.close()


@pytest.mark.parametrize(
    "cursor",
    ["-1", "+1", "1.0", "1e1", "0x1", "1 ", "1,2", "1\x0b", "١", "null", "undefined", "NaN", "[object Object]", "01x",
     "9" * 19, "0" * 19, "9" * 5_000, "1;2", "%31", "\u00b2"],
)  # fmt: skip
async def test_a_cursor_of_any_silly_shape_is_refused(cursor: str) -> None:
    """As the header, raw: clients send what a script has put there. 400, and nothing is left of it."""
    log, broker = Log(), FakeBroker()
    log.append(S)
    async with stream_gateway(log, broker) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        head = f"GET /v1/sessions/{S}/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nConnection: close\r\n"
        writer.write(f"{head}Last-Event-ID:{cursor}\r\n\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        expected = (b"HTTP/1.1 200", b"HTTP/1.1 400")
        assert answer.startswith(expected if cursor.strip() == "1" else expected[1:]), answer[:200]
        assert gateway.hub.viewers == gateway.hub.sessions == broker.subscriptions == 0


async def test_cursors_at_the_edges_are_told_the_truth() -> None:
    """Leading zeros are the same number; the greatest sequence there is, is beyond."""
    log, broker = Log(), FakeBroker()
    for _ in range(3):
        log.append(S)
    async with stream_gateway(log, broker) as gateway, watching(gateway.url) as (client,):
        for cursor, first in (("", 1), ("0", 1), ("000", 1), ("2", 3), ("002", 3)):
            stream = client.stream(S, None, **{"Last-Event-ID": cursor})
            await stream.sequence(3)
            assert_gapless(stream.ids, first=first)
            await stream.close()
        for cursor in ("4", "9" * 18):
            beyond = await client.stream(S, None, **{"Last-Event-ID": cursor}).opened()
            assert (await beyond.event("stream.resync")).json["last_sequence"] == 3
            await beyond.close()


async def test_two_cursors_are_none(stand: DeliveryStand) -> None:
    """Which was meant, nobody knows."""
    writer = await stand.session()
    ann = stand.client()
    path = f"/v1/sessions/{writer.session}/events"
    for query in ("", "?after_sequence=1&after_sequence=2"):
        sent = [("Accept", "text/event-stream"), *([] if query else [("Last-Event-ID", "1"), ("Last-Event-ID", "2")])]
        answer = await asyncio.wait_for(ann.http.request("GET", path + query, headers=sent), 10)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_cursor")
