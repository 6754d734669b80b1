"""What processes tell of themselves, by real ones: metrics of each role, log lines, spans; and what they never tell:
tickets, tokens, secrets, and what people, agents and tools wrote."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from infra.embedded.place import free_port
from infra.settings import Settings, explain
from services.cli.main import run as command_line
from tests.acceptance.agentos.caller import Caller
from tests.support.client import Client, finished, terminal
from tests.support.cluster import Cluster
from tests.support.gateways import JWT_SECRET, user_token
from tests.support.hook_agents import SECRET
from tests.support.receiver import receiving
from tests.support.sse import Stream
from tests.support.standing import StandingClusters
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
PORTS = {"worker": free_port(), "projector": free_port()}
RECEIVER = free_port()
SERVE = [
    *(f"{name}=tests.support.agents:{name}" for name in ("slow", "tools")),
    *(f"{name}=tests.support.telling_agents:{name}" for name in ("asks", "fails", "fails_in_tool")),
    "watched=tests.support.hook_agents:watched",
]


@pytest.fixture(scope="module")
def spans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all processes write their spans."""
    return tmp_path_factory.mktemp("spans") / "spans.jsonl"


@pytest.fixture(scope="module")
def standing(standing_clusters: StandingClusters, spans: Path) -> Iterator[Cluster]:
    settings = {f"TURNLOG_{role.upper()}_METRICS_PORT": str(port) for role, port in PORTS.items()}
    settings |= {"TURNLOG_AUTH": "jwt", "TURNLOG_JWT_SECRET": JWT_SECRET, "TURNLOG_LOG_LEVEL": "debug"}
    settings |= {"TURNLOG_TRACE_EXPORT": "file", "TURNLOG_TRACE_FILE": str(spans), "OTEL_BSP_SCHEDULE_DELAY": "100"}
    settings |= {"TEST_HOOK_DIRECTORY": str(spans.parent), "TEST_HOOK_RECEIVER": f"http://127.0.0.1:{RECEIVER}/hooks"}
    with standing_clusters.start(projectors=1, serve=SERVE, settings=settings) as running:
        yield running


async def scraped(url: str) -> dict[str, float]:
    """Samples by name and labels."""
    async with httpx2.AsyncClient() as http:
        answer = await http.get(url + "/metrics")
    assert answer.status_code == 200
    samples = [s for family in text_string_to_metric_families(answer.text) for s in family.samples]
    return {sample.name + "".join(f"|{v}" for v in sample.labels.values()): sample.value for sample in samples}


def scraped_by(cluster: Cluster) -> dict[str, str]:
    """Where each role is scraped."""
    urls = {role: f"http://127.0.0.1:{port}" for role, port in PORTS.items()}
    return urls | {"agent": cluster.agents[0].url, "gateway": cluster.gateways[0].url}


async def test_each_role_is_scraped(cluster: Cluster) -> None:
    urls = scraped_by(cluster)
    ann = cluster.client(0, user_token())
    session = await ann.create("slow")
    stream = await ann.stream(session, 0).opened()
    turn = (await ann.submit(session, "1000 0.02"))["turn_id"]
    await stream.event("item.delta")
    worker = await scraped(urls["worker"])
    assert (worker["turnlog_active_turns"], worker["turnlog_recoveries_total"]) == (1, 0)
    assert worker["turnlog_nats_connected"] == 1
    assert worker["turnlog_group_commands_count"] > 0
    agent = await scraped(urls["agent"])
    assert agent["turnlog_group_commands_sum"] >= 2, "the create and the submit"
    assert agent["turnlog_commands_pending"] == 0
    assert agent["turnlog_pool_connections|idle"] + agent["turnlog_pool_connections|busy"] > 0
    gateway = await scraped(urls["gateway"])
    assert (gateway["turnlog_viewers"], gateway["turnlog_subscriptions"]) == (1, 1)
    assert gateway["turnlog_open_item_bytes"] > 0
    assert gateway["turnlog_commit_to_send_seconds_count"] >= 2
    assert gateway["turnlog_replay_pages_total"] >= 1
    assert {name for name in gateway if name.startswith("turnlog_gaps_healed_total")} == {
        f"turnlog_gaps_healed_total|{means}" for means in ("wait", "page", "pull", "roll_up", "open_items")
    }
    assert (gateway["turnlog_nats_connected"], agent["turnlog_nats_connected"]) == (1, 1)
    projector = await scraped(urls["projector"])
    assert projector["turnlog_nats_connected"] == 1
    assert projector["turnlog_feed_horizon_age_seconds"] >= 0

    async def seen_to_run() -> bool:
        seen = await scraped(urls["projector"])
        return (seen["turnlog_turns_running"], seen["turnlog_turns_waiting"]) == (1, 0)

    await eventually(seen_to_run, "the projector counts the turn", timeout=30)
    assert worker["turnlog_worker_slots"] >= 1
    assert worker["turnlog_nats_published_total"] > 0
    await ann.json("POST", f"/v1/sessions/{session}/turns/{turn}/interrupt", status=202)
    await terminal(stream, turn)
    await stream.close()

    async def nobody() -> bool:
        seen = await scraped(urls["gateway"])
        return (seen["turnlog_viewers"], seen["turnlog_open_item_bytes"]) == (0, 0)

    await eventually(nobody, "the gauges go back to 0")


def metrics_used(text: str) -> set[str]:
    """Names of metrics in an expression, or a whole file."""
    return set(re.findall(r"\b(?:turnlog|process)_[a-z_]+\b", text))


async def test_alerts_dashboard_and_runbook_name_metrics_that_there_are(cluster: Cluster) -> None:
    files = [*(ROOT / "deploy/prometheus").iterdir(), *(ROOT / "deploy/grafana").iterdir(), ROOT / "docs/runbook.md"]
    used = metrics_used("".join(file.read_text() for file in files))
    assert len(used) > 20
    unknown: set[str] = set()

    async def every_name_exists() -> bool:
        told = {sample.partition("|")[0] for url in scraped_by(cluster).values() for sample in await scraped(url)}
        unknown.clear()
        unknown.update(used - told)
        return not unknown

    try:
        await eventually(every_name_exists, "all names are told", timeout=30)
    except AssertionError:
        raise AssertionError(f"used, but of no role: {unknown}") from None


async def test_labels_that_alerts_and_dashboard_ask_for_are_there(cluster: Cluster) -> None:
    """A matcher on a label that a metric has not matches nothing, for ever. `job`, `instance` are Prometheus' own."""
    files = [*(ROOT / "deploy/prometheus").iterdir(), *(ROOT / "deploy/grafana").iterdir()]
    text = "".join(file.read_text().replace('\\"', '"') for file in files)
    asked = {
        (metric, label)
        for metric, matchers in re.findall(r"\b(turnlog_[a-z_]+)\{([^}]*)\}", text)
        for label in re.findall(r"(\w+)\s*[=!]", matchers)
    }
    ann = cluster.client(0, user_token())
    session = await ann.create("tools")
    await finished(ann, session, (await ann.submit(session, "x"))["turn_id"])
    missing: set[tuple[str, str]] = set()

    async def labels_are_there() -> bool:
        told: set[tuple[str, str]] = set()
        async with httpx2.AsyncClient() as http:
            for url in scraped_by(cluster).values():
                for family in text_string_to_metric_families((await http.get(url + "/metrics")).text):
                    told |= {(sample.name, label) for sample in family.samples for label in sample.labels}
        missing.clear()
        missing.update((metric, label) for metric, label in asked - told if label not in ("job", "instance"))
        return not missing

    assert len(asked) >= 2
    try:
        await eventually(labels_are_there, "all labels are told", timeout=30)
    except AssertionError:
        raise AssertionError(f"asked for, but on no metric: {missing}") from None


def written(spans: Path, **attributes: str) -> list[dict[str, Any]]:
    """Spans in the file that have all of these attributes."""
    lines = [json.loads(line) for line in spans.read_text().splitlines()] if spans.exists() else []
    wanted = {f"turnlog.{name}": value for name, value in attributes.items()}
    return [line for line in lines if wanted.items() <= line["attributes"].items()]


async def test_one_trace_leads_from_submit_over_commit_and_publish_to_send(cluster: Cluster, spans: Path) -> None:
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    ann = cluster.client(0, user_token())
    session = await ann.create("tools")
    stream = await ann.stream(session, 0).opened()
    body = {"input": "marker-of-a-span"}
    sent = await ann.json(
        "POST", f"/v1/sessions/{session}/turns", body, status=202, traceparent=f"00-{trace}-{parent}-01"
    )
    await terminal(stream, sent["turn_id"])

    async def all_four() -> list[dict[str, Any]] | None:
        found = [line for line in written(spans, session_id=session) if line["context"]["trace_id"] == "0x" + trace]
        return found if len(found) >= 4 else None

    found = await eventually(all_four, "four spans of the caller's trace")
    assert [line["name"] for line in found].count("send") == 1
    by_name = {line["name"]: line for line in found}
    assert sorted(by_name) == sorted(line["name"] for line in found) == ["commit", "publish", "send", "submit"]
    above = parent
    for name, role in (("submit", "gateway"), ("commit", "agent"), ("publish", "agent"), ("send", "gateway")):
        line = by_name[name]
        assert line["parent_id"] == "0x" + above
        assert line["resource"]["attributes"]["service.name"] == f"turnlog-{role}"
        assert line["start_time"] <= line["end_time"]
        above = line["context"]["span_id"].removeprefix("0x")
    assert by_name["submit"]["attributes"]["turnlog.turn_id"] == sent["turn_id"]
    assert by_name["publish"]["attributes"]["turnlog.sequence"] == sent["sequence"]
    assert by_name["commit"]["start_time"] >= by_name["submit"]["start_time"]
    assert by_name["publish"]["start_time"] >= by_name["commit"]["start_time"]
    # The thread is in the metadata, which viewers never see; and no refusal breaks it.
    queued = next(event for event in await ann.events(session) if event["type"] == "turn.queued")
    assert trace not in json.dumps(queued)
    missing = f"/v1/sessions/{session}/turns/{sent['turn_id']}/interrupt"
    await ann.json("POST", missing, status=409, traceparent=f"00-{trace}-{parent}-01")

    async def refused() -> list[dict[str, Any]]:
        return [one for one in written(spans, session_id=session) if one["status"].get("description")]

    ended = await eventually(refused, "spans of the refusal")
    assert {one["status"]["description"] for one in ended} == {"turn_not_running"}
    assert "marker-of-a-span" not in spans.read_text()


async def test_log_lines_name_session_turn_and_sequence(cluster: Cluster) -> None:
    ann = cluster.client(0, user_token())
    session = await ann.create("tools", external_id="a name of mine")
    queued = await ann.submit("a name of mine", "x")
    await finished(ann, session, queued["turn_id"])

    def said(role: str, event: str) -> list[tuple[Any, ...]]:
        lines = [json.loads(line) for process in cluster.of(role) for line in process.text().splitlines()]
        mine = [line for line in lines if line["event"] == event and line.get("session") == session]
        return [(line.get("turn"), line.get("sequence"), line.get("route"), line["role"]) for line in mine]

    async def told() -> bool:
        return bool(said("worker", "turn.leaves"))

    await eventually(told, "the turn has left the worker")
    route, turn = "/v1/sessions/{session_ref}/turns", queued["turn_id"]
    assert (turn, queued["sequence"], route, "gateway") in said("gateway", "http_request")
    assert said("worker", "turn.executes") == [(turn, queued["sequence"] + 1, None, "worker")]
    ends = next(e["sequence"] for e in await ann.events(session) if e["type"] == "turn.completed")
    assert said("worker", "turn.leaves") == [(turn, ends, None, "worker")]


RUNBOOK = (ROOT / "docs/runbook.md").read_text()
COMMANDS = sorted(set(re.findall(r"(?:`|^)(turnlog [a-z-]+(?: [a-z]+)?(?: [A-Z]+)?)", RUNBOOK, re.MULTILINE)))
ONLY_NAMED = {"turnlog migrate", "turnlog restore-stamp"}
"""What is not for a running installation, or not twice: that the command exists is all that is looked at."""


async def test_every_command_of_the_runbook_works(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands there, with what it is to be filled in with; statements in the agent database as superuser."""
    ann = cluster.client(0, user_token())
    session = await ann.create("tools")
    await finished(ann, session, (await ann.submit(session, "x"))["turn_id"])
    for name, value in _environment(cluster):
        if name.startswith("TURNLOG_") and not name.startswith("TURNLOG_TRACE"):
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("TURNLOG_POSTGRES_ADMIN", cluster.postgres.superuser_dsn)
    assert {"turnlog status", "turnlog projections parked", "turnlog rebuild NAME", *ONLY_NAMED} <= set(COMMANDS)
    for command in COMMANDS:
        words = command.replace("NAME", "usage").replace("SESSION", session).split()[1:]
        if words[0] == "status":
            words += ["--url", cluster.gateways[0].url, "--token", user_token()]
        elif command in ONLY_NAMED:
            words.append("--help")
        assert await asyncio.to_thread(command_line, words) == 0, command
    statements = [
        one
        for block in re.findall(r"^```sql\n(.*?)^```", RUNBOOK, re.MULTILINE | re.DOTALL)
        for one in block.split(";\n")
    ]
    statements += re.findall(r"`(SELECT [^`]*|ROLLBACK [^`]*)`", RUNBOOK)
    statements = [one for one in statements if one.strip()]
    assert len(statements) >= 5
    async with cluster.connection() as connection:
        pid = await connection.fetchval("SELECT pg_backend_pid()")
        for statement in statements:
            if statement.startswith("ROLLBACK PREPARED"):
                # The server's own word that there is no such transaction: the statement was understood.
                with pytest.raises(asyncpg.UndefinedObjectError, match="GID"):
                    await connection.execute(statement)
            elif "pg_terminate_backend" in statement:
                assert await connection.fetchval(statement.replace("(PID)", f"({pid + 1_000_000})")) is False
            else:
                await connection.fetch(statement)


def test_what_the_runbook_names_is_there() -> None:
    """Settings, lines of logs and routes."""
    known = {line.variable for line in explain(Settings())}
    settings = set(re.findall(r"\bTURNLOG_[A-Z_]+\b", RUNBOOK))
    assert settings - known == set()
    source = "".join(file.read_text() for file in (ROOT / "services").rglob("*.py"))
    lines = set(re.findall(r"`((?:turn|worker|lease|hook)\.[a-z_]+|http_request)`", RUNBOOK))
    assert len(lines) >= 4
    assert {line for line in lines if f'"{line}"' not in source} == set()
    for method, path in re.findall(r"`(GET|POST) (/v1/[^`?]*)", RUNBOOK):
        assert path.replace("{id}", "{session_ref:str}") in source, (method, path)


async def test_no_log_of_any_role_holds_a_ticket_a_token_or_what_anybody_wrote(cluster: Cluster) -> None:
    """At the level debug, with libraries' own lines: every way in that takes words, and ways in which they fail."""
    token = user_token()
    ann = cluster.client(0, token)
    fields = {"title": "marker title", "metadata": {"k": "marker metadata"}, "external_id": "marker name"}
    made = await ann.json("POST", "/v1/sessions", {"agent_id": "slow", **fields}, status=201)
    session = made["session_id"]
    ticket = (await ann.json("POST", f"/v1/sessions/{session}/stream-ticket", status=201))["ticket"]
    browser = Client(cluster.gateways[0].url)
    path = f"/v1/sessions/{session}/events?ticket={ticket}"
    stream = await Stream(browser.http, path, {"Accept": "text/event-stream"}).opened()
    cookie = browser.http.cookies["turnlog_stream"]
    await stream.close()
    again = await Stream(browser.http, path, {"Accept": "text/event-stream"}).opened()
    assert again.status == 200, "by the cookie"
    await again.close()
    browser.http.cookies.clear()
    # Refused in every way: a wrong ticket, shapes, text that is no JSON, unknown paths, methods, too much.
    for method, where, body, status in (
        ("GET", f"/v1/sessions/{session}/events?ticket=tlt_marker{ticket[10:]}", b"", 401),
        ("POST", "/v1/sessions/marker%20name/turns", b'{"input": "marker", "more": "marker"}', 422),
        ("POST", "/v1/sessions/marker%20name/turns", b'{"input": "marker', 422),
        ("POST", "/v1/sessions/marker%20name/turns", b'{"input": "' + b"marker" * 100_000 + b'"}', 413),
        ("POST", "/marker/marker?token=marker", b"marker", 404),
        ("PUT", "/v1/sessions/marker%20name?secret=marker", b"marker", 405),
    ):
        headers = {} if "ticket" in where else {"Authorization": f"Bearer {token}"}
        answer = await browser.http.request(method, where, content=body, headers=headers)
        assert answer.status_code == status, (method, where, answer.text)
    await browser.http.get("/v1/sessions", headers={"Authorization": "Bearer marker.marker.marker"})
    # What people say, agents and tools answer, and fail with.
    for agent, how in (("fails", "failed"), ("fails_in_tool", "failed"), ("tools", "completed")):
        other = await ann.create(agent)
        ended = await finished(ann, other, (await ann.submit(other, "marker of an input", "marker key"))["turn_id"])
        assert ended["status"] == how
    asking = await ann.create("asks")
    turn = (await ann.submit(asking, "marker of a question"))["turn_id"]

    async def asked() -> list[dict[str, Any]]:
        found: dict[str, Any] = await ann.json("GET", f"/v1/sessions/{asking}/turns/{turn}")
        return found["requirements"] if found["status"] == "paused" else []

    (question,) = await eventually(asked, "it asks")
    given = {"tool_call_id": question["tool_call_id"], "approved": True, "note": "marker of a note"}
    await ann.json("POST", f"/v1/sessions/{asking}/turns/{turn}/continue", {"answers": [given]}, status=202)
    await finished(ann, asking, turn)
    # Hooks and a webhook that is refused once.
    async with receiving(RECEIVER) as receiver:
        receiver.statuses = [500]
        hooked = await ann.create("watched")
        for text in ("marker for hooks", "marker secret"):
            await finished(ann, hooked, (await ann.submit(hooked, text))["turn_id"])

        async def posted() -> bool:
            return len(receiver.requests) >= 2

        await eventually(posted, "the webhook came through", timeout=30)
    signature = receiver.requests[0].headers["turnlog-signature"]
    # AgentOS: forms of both kinds, and faults in them.
    bearer = {"Authorization": f"Bearer {token}"}
    async with Caller(cluster.gateways[0].url + "/agentos", bearer) as caller:
        await caller.run("tools", "marker of a run", "marker session", user_id="marker", session_state='{"a":"marker"}')
        parts = {"message": (None, "marker in parts"), "session_id": (None, "marker session"), "stream": (None, "true")}
        streamed = await caller.http.post("/agents/tools/runs", files=parts)
        assert streamed.status_code == 200
        for form in ({"message": "marker", "version": "marker"}, {"stream": "marker"}, {"session_state": "{marker"}):
            await caller.http.post("/agents/tools/runs", data=form)
        await caller.http.post("/agents/tools/runs", content=b"marker", headers={"Content-Type": "multipart/form-data"})
        await caller.get("/sessions/marker session", user_id="marker")
    await browser.close()
    logs = cluster.logs()
    assert "http_request" in logs
    assert '"level":"debug"' in logs.replace(" ", "")
    assert {process.role for process in cluster.processes} == {"gateway", "agent", "worker", "projector"}
    secrets = {value for name, value in _environment(cluster) if name.endswith(("_SECRET", "_PASSWORD"))}
    dsns = [value for name, value in _environment(cluster) if name.startswith("TURNLOG_POSTGRES_") and "://" in value]
    secrets |= {httpx2.URL(dsn).password for dsn in dsns}
    assert len(secrets) >= 6
    for secret in (ticket, cookie, token, made["session_token"], signature, SECRET, *secrets, "marker", "Bearer"):
        assert secret
        place = logs.lower().find(secret.lower())
        assert place < 0, logs[max(0, place - 300) : place + 300]


def _environment(cluster: Cluster) -> list[tuple[str, str]]:
    return [(name, value) for process in cluster.processes for name, value in process.env.items()]
