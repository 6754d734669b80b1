"""Who may ask, and what processes tell of it: authentication, authentication off, health, metrics, log lines."""

import json
import logging
from typing import Any

import pytest
from structlog.testing import capture_logs

from infra.settings import SettingMissing, Settings
from services.gateway.app import create_app
from services.gateway.main import OpenToAll, user_tokens
from services.http_log import HttpLog
from tests.support.client import Client
from tests.support.databases import Databases
from tests.support.gateways import AGENT, SERVICE_SECRET, Served, http_stand, user_token


async def test_every_route_wants_a_credential(databases: Databases) -> None:
    async with http_stand(databases) as stand:
        session = await stand.client().create(AGENT)
        document = await stand.client().json("GET", "/schema")
        bad = ("", "x", user_token(expires=1), user_token(expires=None), user_token(key="y" * 32), "tls_" + "0" * 76)
        asked = 0
        for path, operations in document["paths"].items():
            if not path.startswith("/v1/"):
                continue
            for method in set(operations) & {"get", "post", "patch", "delete"}:
                where = path.replace("{session_ref}", session).replace("{turn_ref}", session)
                for token in bad if path.endswith("/turns") else bad[:1]:
                    answer = await stand.client(token=token).http.request(method, where, content=b"{}")
                    assert answer.status_code == 401, (method, path, token)
                    assert answer.headers["www-authenticate"] == "Bearer"
                    asked += 1
        assert asked > 15


async def test_the_internal_api_wants_the_secret(databases: Databases) -> None:
    async with http_stand(databases, gateways=0) as stand:
        for token in ("", "x", SERVICE_SECRET[:-1], user_token()):
            agent = Client(stand.agents[0], token)
            for method, path in (
                ("POST", "/internal/commands"),
                ("POST", "/internal/heads"),
                ("GET", "/internal/agents"),
                ("GET", "/internal/sessions/x/status"),
            ):
                assert (await agent.request(method, path)).status_code == 401
            await agent.json("GET", "/healthz")
            await agent.close()


async def test_authentication_off_is_for_this_machine_only(databases: Databases) -> None:
    """Any web page can make a browser send a form to loopback, under a foreign Origin or, rebound, a foreign Host."""
    async with http_stand(databases, auth="off") as stand:
        me = stand.client(token="")
        session = await me.create(AGENT, external_id="mine")
        await me.submit("mine", "hi")
        assert [one["session_id"] for one in (await me.json("GET", "/v1/sessions"))["items"]] == [session]
        path = "/v1/sessions/mine/turns"
        for headers, code in (
            ({"Origin": "http://evil.example"}, "origin_refused"),
            ({"Origin": "null"}, "origin_refused"),
            ({"Host": "evil.example"}, "host_refused"),
        ):
            refused = await me.json("POST", path, {"input": "x"}, status=403, **headers)
            assert refused["code"] == code
        await me.json("POST", path, {"input": "x"}, status=202, Origin=stand.gateways[0])
        assert (await me.json("GET", "/v1/sessions/mine/status"))["queued"] == 2


def test_authentication_off_refuses_other_addresses() -> None:
    assert user_tokens(Settings(auth="off")) is None
    for host in ("0.0.0.0", "::", "10.1.2.3", "example.org"):
        with pytest.raises(OpenToAll, match="loopback"):
            user_tokens(Settings(auth="off", gateway={"host": host}))  # type: ignore[arg-type]
    with pytest.raises(SettingMissing, match="TURNLOG_JWT_SECRET"):
        user_tokens(Settings())


async def test_logs_and_metrics_tell_templates_and_no_content(
    databases: Databases, caplog: pytest.LogCaptureFixture
) -> None:
    lines: list[dict[str, Any]] = []

    def say(event: str, **line: Any) -> None:
        lines.append({"event": event, **line})

    with capture_logs() as said, caplog.at_level(logging.DEBUG):
        async with http_stand(databases) as stand:
            deps = stand.deps[0]
            async with Served(HttpLog(create_app(deps), deps.metrics.registry, say)).running() as served:
                ann = Client(served.url, user_token("ann"))
                made = await ann.json("POST", "/v1/sessions", {"agent_id": AGENT, "external_id": "a name"}, status=201)
                queued = await ann.submit("a name", "a marker", "a key")
                await ann.json("GET", f"/v1/sessions/{made['session_id']}/turns/{queued['turn_id']}")
                await ann.json("GET", "/v1/sessions/nothing?x=a+marker", status=404)
                await ann.json("GET", "/nowhere/a%20marker", status=404)
                metrics = (await ann.request("GET", "/metrics")).text
                await ann.close()
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith(("httpx2", "httpcore2"))]
    told = json.dumps([lines, said, ours], default=repr) + metrics
    bearer = user_token("ann")
    for word in ("a marker", "a name", "a key", made["session_token"], made["session_id"], "Bearer", bearer):
        assert word not in told
    assert [(line["method"], line["route"], line["status"]) for line in lines[:5]] == [
        ("POST", "/v1/sessions", 201),
        ("POST", "/v1/sessions/{session_ref}/turns", 202),
        ("GET", "/v1/sessions/{session_ref}/turns/{turn_ref}", 200),
        ("GET", "/v1/sessions/{session_ref}", 404),
        ("GET", "(none)", 404),
    ]
    assert set(lines[0]) == {"event", "method", "route", "status", "seconds"}
    wanted = 'turnlog_http_request_seconds_count{method="POST",route="/v1/sessions",status="201"} 1.0'
    assert wanted in metrics
