"""Who may watch, how a browser opens a stream, and how long: D14, D15."""

import time
from collections.abc import AsyncIterator
from http.cookies import SimpleCookie

import asyncpg
import httpx2
import pytest

from infra.embedded import EmbeddedNats
from tests.support.client import Client
from tests.support.databases import Databases
from tests.support.delivery import DeliveryStand, Writer, delivery_stand
from tests.support.gateways import AGENT, http_stand, user_token
from tests.support.sse import Stream


@pytest.fixture
async def stand(databases: Databases, nats: EmbeddedNats) -> AsyncIterator[DeliveryStand]:
    async with delivery_stand(databases, nats, gateways=2) as made:
        yield made


class Browser:
    """Sends no header, keeps cookies by their path."""

    def __init__(self, url: str) -> None:
        self.http = httpx2.AsyncClient(base_url=url, timeout=httpx2.Timeout(15.0, read=30))
        self._streams: list[Stream] = []

    def stream(self, path: str, **headers: str) -> Stream:
        sent = {"Accept": "text/event-stream", **{name.replace("_", "-"): value for name, value in headers.items()}}
        self._streams.append(Stream(self.http, path, sent))
        return self._streams[-1]

    async def close(self) -> None:
        for stream in self._streams:
            await stream.close()
        await self.http.aclose()


@pytest.fixture
async def browsers() -> AsyncIterator[list[Browser]]:
    """Closed at the end."""
    made: list[Browser] = []
    yield made
    for browser in made:
        await browser.close()


async def ticket_of(client: Client, session: str) -> str:
    made = await client.json("POST", f"/v1/sessions/{session}/stream-ticket", status=201)
    assert made["expires_in"] == 30
    ticket: str = made["ticket"]
    return ticket


async def test_d15_a_ticket_opens_once_and_its_cookie_reconnects(stand: DeliveryStand, browsers: list[Browser]) -> None:
    writer = await stand.session(external_id="a thread")
    ann = stand.client()
    first, other = Browser(stand.gateways[0].url), Browser(stand.gateways[1].url)
    browsers += [first, other]
    for name in (writer.session, "a thread"):
        ticket = await ticket_of(ann, name)
        path = f"/v1/sessions/{name.replace(' ', '%20')}/events"
        opened = await first.stream(f"{path}?ticket={ticket}").opened()
        assert opened.status == 200
        (cookie,) = SimpleCookie(opened.headers["set-cookie"]).values()
        assert (cookie["path"], cookie["httponly"], cookie["samesite"], cookie["secure"]) == (path, True, "Strict", "")
        assert 0 < int(cookie["max-age"]) <= 86_400
        # Spent, at every gateway; with the cookie the same URL goes on, as an EventSource asks again.
        again = await other.stream(f"{path}?ticket={ticket}").opened()
        assert again.status == 401
        assert b"ticket" not in again.body
        head = stand.client().stream(writer.session, 0)
        await head.first_committed()
        resumed = await first.stream(f"{path}?ticket={ticket}", Last_Event_ID="1").opened()
        assert (resumed.status, resumed.frames[0].id) == (200, "1")
        assert "set-cookie" not in resumed.headers
        assert (await first.http.get(path, headers={"Accept": "application/json"})).status_code == 200
    # The cookie opens nothing else, wherever it is sent.
    sent = {"Cookie": f"turnlog_stream={cookie.value}"}
    mine = f"/v1/sessions/{writer.session}"
    for method, where in (("GET", mine), ("POST", f"{mine}/turns"), ("DELETE", mine), ("GET", f"{mine}/messages")):
        assert (await other.http.request(method, where, headers=sent)).status_code == 401
    elsewhere = await stand.session()
    answer = await other.http.get(f"/v1/sessions/{elsewhere.session}/events", headers=sent)
    assert answer.status_code == 404
    for wrong in ("", "x", "tlt_" + "A" * 43, ticket, "y" * 5000):
        assert (await other.http.get(f"{mine}/events", params={"ticket": wrong})).status_code == 401
        assert (
            await other.http.get(f"{mine}/events", headers={"Cookie": f"turnlog_stream={wrong}"})
        ).status_code == 401
    assert (await stand.client(user="bob").request("POST", f"{mine}/stream-ticket")).status_code == 404


async def test_behind_https_the_cookie_is_secure_and_an_overloaded_gateway_spends_no_ticket(
    stand: DeliveryStand, browsers: list[Browser]
) -> None:
    writer = await stand.session()
    browser = Browser(stand.gateways[0].url)
    browsers.append(browser)
    path = f"/v1/sessions/{writer.session}/events?ticket={await ticket_of(stand.client(), writer.session)}"
    stand.gateways[0].hub.draining = True
    refused = await browser.stream(path).opened()
    assert [frame.json["reason"] for frame in refused.frames] == ["draining"]
    stand.gateways[0].hub.draining = False
    opened = await browser.stream(path, X_Forwarded_Proto="https").opened()
    assert opened.headers["set-cookie"].endswith("; HttpOnly; SameSite=Strict; Secure")


async def closing_reason(stream: Stream, timeout: float = 5.0) -> str:
    await stream.end(timeout)
    reason: str = stream.frames[-1].json["reason"]
    return reason


async def test_d14_a_token_that_expires_closes_and_a_new_one_resumes(stand: DeliveryStand) -> None:
    """With the broker away, too: a timer of the stream's own."""
    writer = await stand.session()
    url = stand.gateways[0].url
    expires = int(time.time()) + 2
    # Leeway is for what was signed elsewhere, not for how long a stream goes on.
    short, long = Client(url, user_token(expires=expires)), Client(url, user_token())
    try:
        stream = await short.stream(writer.session, 0).opened()
        await stream.first_committed()
        assert await closing_reason(stream) == "expired"
        assert expires - 0.1 <= time.time() < expires + 2
        await writer.start()
        resumed = long.stream(writer.session, stream.last_id)
        await resumed.event("turn.started")
        assert [*stream.ids, *resumed.ids] == [1, 2, 3]
    finally:
        await short.close()
        await long.close()


async def test_d14_a_void_session_token_closes_its_streams_at_every_gateway(
    stand: DeliveryStand, browsers: list[Browser]
) -> None:
    """By the control subject, at once; streams by other rights go on."""
    ann = stand.client()
    body = {"agent_id": AGENT, "external_id": "e"}
    made = await ann.json("POST", "/v1/sessions", body, status=201)
    session, token = made["session_id"], made["session_token"]
    holders = [Client(gateway.url, token) for gateway in stand.gateways]
    try:
        browser = Browser(stand.gateways[1].url)
        browsers.append(browser)
        ticket = await ticket_of(holders[0], session)
        by_ticket = await browser.stream(f"/v1/sessions/{session}/events?ticket={ticket}").opened()
        by_token = [await holder.stream(session, 0).opened() for holder in holders]
        owners = await ann.stream(session, 0).opened()
        fresh = (await ann.json("POST", "/v1/sessions", body))["session_token"]
        for stream in (by_ticket, *by_token):
            assert await closing_reason(stream, timeout=2.0) == "revoked"
        assert not owners.ended
        assert (await holders[0].request("GET", f"/v1/sessions/{session}/events")).status_code == 401
        assert (await browser.http.get(f"/v1/sessions/{session}/events")).status_code == 401
        renewed = Client(stand.gateways[0].url, fresh)
        holders.append(renewed)
        await (await renewed.stream(session, by_token[0].last_id).opened()).close()
    finally:
        for holder in holders:
            await holder.close()


async def test_d14_what_is_revoked_is_noticed_without_a_broker(databases: Databases) -> None:
    """An operator gives the session to somebody else; no gateway is told, each looks every few seconds."""
    async with http_stand(databases, gateway={"revocation_seconds": 0.3}) as stand:
        ann, eve = stand.client(), stand.client(token=user_token("eve"))
        session = await ann.create(AGENT)
        stream = await ann.stream(session, 0).opened()
        postgres = stand.settings.postgres.gateway
        assert postgres is not None
        connection = await asyncpg.connect(postgres.get_secret_value())
        await connection.execute(
            "UPDATE registrations SET user_id = 'eve', changed_at = clock_timestamp() WHERE session_id = $1", session
        )
        await connection.close()
        assert await closing_reason(stream, timeout=3.0) == "revoked"
        assert (await ann.stream(session, 0).opened()).status == 404
        assert (await eve.stream(session, 0).opened()).status == 200


async def test_d14_deletion_closes_with_what_is_left(stand: DeliveryStand) -> None:
    writer: Writer = await stand.session()
    streams = [await stand.client(gateway).stream(writer.session, 0).opened() for gateway in (0, 1)]
    assert (await stand.client().request("DELETE", f"/v1/sessions/{writer.session}")).status_code == 204
    for stream in streams:
        assert await closing_reason(stream, timeout=8.0) == "closed"
        assert stream.committed[-1].event == "session.closed"
    assert (await stand.client().stream(writer.session, streams[0].last_id).opened()).status == 204


async def test_only_listed_origins_may_call(databases: Databases) -> None:
    async with http_stand(databases, gateway={"origins": ("https://app.example",)}) as stand:
        ann = stand.client()
        session = await ann.create(AGENT)
        path = f"/v1/sessions/{session}/events"
        for origin, allowed in (("https://app.example", True), ("https://app.example.evil", False), ("null", False)):
            asks = {"Origin": origin, "Access_Control_Request_Method": "POST"}
            preflight = await ann.request("OPTIONS", f"/v1/sessions/{session}/turns", **asks)
            stream = await ann.stream(session, 0, Origin=origin).opened()
            page = await ann.request("GET", path, Accept="application/json", Origin=origin)
            for headers in (preflight.headers, stream.headers, page.headers):
                assert (headers.get("access-control-allow-origin") == origin) is allowed
                assert headers.get("access-control-allow-origin") in (origin, None)
            assert (preflight.headers.get("access-control-allow-credentials") == "true") is allowed
