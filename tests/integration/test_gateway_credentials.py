"""Credentials as attackers and wrong clocks meet them, over HTTP."""

import asyncio
import time
from http.cookies import SimpleCookie
from typing import Any

import pytest

from domain.ids import Micros
from infra.settings.groups import Gateway
from infra.system import SystemClock
from tests.support import gateways
from tests.support.client import Client
from tests.support.databases import Databases
from tests.support.gateways import AGENT, http_stand, user_token
from tests.support.sse import Stream

HOUR = 3600 * 1_000_000


class WrongClock(SystemClock):
    """A gateway's host whose clock is wrong."""

    off = 0

    def now(self) -> Micros:
        return Micros(super().now() + self.off)


@pytest.mark.parametrize("off", [-2 * HOUR, 2 * HOUR], ids=["slow", "fast"])
async def test_session_tokens_tickets_and_cookies_go_by_the_databases_clock(
    databases: Databases, monkeypatch: pytest.MonkeyPatch, off: int
) -> None:
    """At a gateway whose host is two hours wrong they are good as long as they were meant to be, and no longer."""
    monkeypatch.setattr(WrongClock, "off", off)
    monkeypatch.setattr(gateways, "SystemClock", WrongClock)
    async with http_stand(databases, gateway={"token_seconds": 6.0}) as stand:
        ann = stand.client()
        made = await ann.json("POST", "/v1/sessions", {"agent_id": AGENT}, status=201)
        asked = time.monotonic()
        session = made["session_id"]
        holder = stand.client(token=made["session_token"])
        assert (await holder.json("GET", f"/v1/sessions/{session}/status"))["last_sequence"] == 1
        by_token = await holder.stream(session, 0).opened()
        ticket = (await holder.json("POST", f"/v1/sessions/{session}/stream-ticket", status=201))["ticket"]
        browser = Client(stand.gateways[0])
        try:
            path = f"/v1/sessions/{session}/events?ticket={ticket}"
            by_ticket = await Stream(browser.http, path, {"Accept": "text/event-stream"}).opened()
            assert [by_token.status, by_ticket.status] == [200, 200]
            (cookie,) = SimpleCookie(by_ticket.headers["set-cookie"]).values()
            assert 0 <= int(cookie["max-age"]) <= 6
            for stream in (by_token, by_ticket):
                await stream.end(20.0)
                assert stream.frames[-1].json["reason"] == "expired"
            assert time.monotonic() - asked > 5.0
            again = await browser.http.get(path, headers={"Accept": "application/json"})
            assert again.status_code == 401
            assert (await holder.request("GET", f"/v1/sessions/{session}")).status_code == 401
            assert (await ann.request("GET", f"/v1/sessions/{session}")).status_code == 200
        finally:
            await browser.close()


async def test_deletion_ends_open_streams_without_a_broker(databases: Databases) -> None:
    """Each gateway finds it out by itself; with what the settings say by default within ten seconds."""
    defaults = Gateway()
    assert defaults.heads_seconds + 2 < 10
    assert defaults.revocation_seconds + 2 < 10
    async with http_stand(databases, gateways=2, gateway={"heads_seconds": 0.5}) as stand:
        ann = stand.client()
        session = await ann.create(AGENT)
        streams = [await stand.client(number).stream(session, 0).opened() for number in (0, 1)]
        assert (await ann.request("DELETE", f"/v1/sessions/{session}")).status_code == 204
        for stream in streams:
            await stream.end(8.0)
            assert stream.committed[-1].event == "session.closed"
            assert stream.frames[-1].json["reason"] == "closed"


async def test_tokens_of_all_sizes_and_shapes_are_401_and_quick(databases: Databases) -> None:
    good = user_token()
    head, claims, signature = good.split(".")
    async with http_stand(databases) as stand:
        ann = stand.client()
        session = await ann.create(AGENT)
        shapes = [
            "x" * 8193,
            "x" * 60_000,
            "." * 8000,
            f"{head}.{claims}.{signature}A",
            f"{head}.{'A' * 8000}.{signature}",
            f"{good}.{good}",
            f"{head}..{claims}..{signature}",
            "tls_" + "0" * 8000,
            "tls_" + "0" * 32 + "_" + "A" * 43,
            "tls_\u00e9",
        ]
        for shape in shapes:
            raw = f"Bearer {shape}".encode("latin-1")
            for path in (f"/v1/sessions/{session}", "/v1/sessions", "/agentos/agents"):
                answer = await ann.http.request("GET", path, headers=[(b"Authorization", raw)])
                # Of a kind that never opens that: said without a look at whose it is.
                looks_right = len(shape) == 80 and shape.startswith("tls_") and path == "/v1/sessions"
                assert answer.status_code == (403 if looks_right else 401), (shape[:20], path)
        for scheme in ("", "Basic ", "bearer", "Bearer\t", "Bearer ,"):
            answer = await ann.http.request("GET", "/v1/sessions", headers={"Authorization": scheme + good})
            assert answer.status_code == 401, scheme
        twice = [("Authorization", "Bearer x"), ("Authorization", f"Bearer {good}")]
        assert (await stand.client(token="").http.get("/v1/sessions", headers=twice)).status_code == 401


FOREIGN: list[tuple[str, str, dict[str, str], int]] = [
    ("POST", "/v1/sessions", {"Sec-Fetch-Site": "cross-site"}, 403),
    ("POST", "/v1/sessions", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
    ("GET", "/v1/sessions", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
    (
        "GET",
        "/v1/sessions",
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://a.example"},
        403,
    ),
    ("GET", "/v1/sessions", {"Sec-Fetch-Site": "cross-site", "Origin": "https://app.example"}, 200),
    ("GET", "/", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Accept": "text/html"}, 200),
    ("GET", "/v1/sessions", {"Sec-Fetch-Site": "same-origin"}, 200),
    ("GET", "/v1/sessions", {"Sec-Fetch-Site": "none"}, 200),
    ("POST", "/v1/sessions", {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:3000"}, 403),
    ("POST", "/agentos/agents/echo/runs", {"Origin": "http://a.example"}, 403),
    ("GET", "/healthz", {"Host": "a.example"}, 403),
    ("GET", "/v1/sessions", {"Host": "127.0.0.1.a.example"}, 403),
    ("GET", "/v1/sessions", {"Host": "127.0.0.1@a.example"}, 403),
    ("GET", "/v1/sessions", {"Host": "localhost.:1"}, 200),
    ("GET", "/v1/sessions", {"Host": "[::1]"}, 200),
]


async def test_csrf_without_authentication_only_our_pages_and_no_page_get_through(databases: Databases) -> None:
    async with http_stand(databases, auth="off", gateway={"origins": ("https://app.example",)}) as stand:
        me = stand.client(token="")
        for method, path, headers, status in FOREIGN:
            body: Any = {"agent_id": AGENT} if method == "POST" else None
            answer = await me.http.request(method, path, json=body, headers=headers)
            assert answer.status_code == status, (method, path, headers, answer.text)
        assert (await me.json("GET", "/v1/sessions"))["items"] == []


async def test_csrf_with_authentication_no_cookie_is_a_right_to_change_anything(databases: Databases) -> None:
    """The stream's cookie is the only credential that a browser adds by itself: it opens that stream, for reading."""
    async with http_stand(databases) as stand:
        ann = stand.client()
        session = await ann.create(AGENT)
        ticket = (await ann.json("POST", f"/v1/sessions/{session}/stream-ticket", status=201))["ticket"]
        browser = Client(stand.gateways[0])
        try:
            path = f"/v1/sessions/{session}/events"
            stream = await Stream(browser.http, f"{path}?ticket={ticket}", {"Accept": "text/event-stream"}).opened()
            cookie = browser.http.cookies["turnlog_stream"]
            await stream.close()
            document = await ann.json("GET", "/schema")
            sent = {"Cookie": f"turnlog_stream={cookie}", "Origin": "https://evil.example"}
            tried = 0
            for template, operations in document["paths"].items():
                for method in set(operations) & {"post", "patch", "delete", "put"}:
                    where = template.replace("{session_ref}", session)
                    answer = await browser.http.request(method, where, headers=sent, json={"input": "x"})
                    assert answer.status_code == 401, (method, template)
                    tried += 1
            assert tried >= 10
            assert (await asyncio.wait_for(browser.http.get(path, headers=sent), 10)).status_code == 200
        finally:
            await browser.close()
