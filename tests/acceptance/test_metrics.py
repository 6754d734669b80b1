"""What each role tells Prometheus, scraped from real processes; and what no process ever writes: tickets and tokens."""

import re
from pathlib import Path

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from infra.embedded.place import free_port
from tests.support.client import Client, terminal
from tests.support.cluster import Clusters
from tests.support.gateways import JWT_SECRET, user_token
from tests.support.sse import Stream
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]


async def scraped(url: str) -> dict[str, float]:
    """Samples by name and labels."""
    async with httpx2.AsyncClient() as http:
        answer = await http.get(url + "/metrics")
    assert answer.status_code == 200
    samples = [s for family in text_string_to_metric_families(answer.text) for s in family.samples]
    return {sample.name + "".join(f"|{v}" for v in sample.labels.values()): sample.value for sample in samples}


async def test_each_role_is_scraped_and_no_log_holds_a_ticket_or_token(clusters: Clusters) -> None:
    ports = {"worker": free_port(), "projector": free_port()}
    settings = {f"TURNLOG_{role.upper()}_METRICS_PORT": str(port) for role, port in ports.items()}
    settings |= {"TURNLOG_AUTH": "jwt", "TURNLOG_JWT_SECRET": JWT_SECRET, "TURNLOG_LOG_LEVEL": "debug"}
    serve = ["slow=tests.support.agents:slow"]
    async with clusters.start(projectors=1, serve=serve, settings=settings) as cluster:
        token = user_token()
        ann = cluster.client(0, token)
        made = await ann.json("POST", "/v1/sessions", {"agent_id": "slow"}, status=201)
        session = made["session_id"]
        ticket = (await ann.json("POST", f"/v1/sessions/{session}/stream-ticket", status=201))["ticket"]
        browser = Client(cluster.gateways[0].url)
        path = f"/v1/sessions/{session}/events?ticket={ticket}"
        stream = await Stream(browser.http, path, {"Accept": "text/event-stream"}).opened()
        cookie = browser.http.cookies["turnlog_stream"]
        turn = (await ann.submit(session, "1000 0.02"))["turn_id"]
        await stream.event("item.delta")
        worker = await scraped(f"http://127.0.0.1:{ports['worker']}")
        assert (worker["turnlog_active_turns"], worker["turnlog_recoveries_total"]) == (1, 0)
        assert worker["turnlog_nats_connected"] == 1
        assert worker["turnlog_group_commands_count"] > 0
        agent = await scraped(cluster.agents[0].url)
        assert agent["turnlog_group_commands_sum"] >= 2, "the create and the submit"
        assert agent["turnlog_commands_pending"] == 0
        assert agent["turnlog_pool_connections|idle"] + agent["turnlog_pool_connections|busy"] > 0
        gateway = await scraped(cluster.gateways[0].url)
        assert (gateway["turnlog_viewers"], gateway["turnlog_subscriptions"]) == (1, 1)
        assert gateway["turnlog_open_item_bytes"] > 0
        assert gateway["turnlog_commit_to_send_seconds_count"] >= 2
        assert gateway["turnlog_replay_pages_total"] >= 1
        assert {name for name in gateway if name.startswith("turnlog_gaps_healed_total")} == {
            f"turnlog_gaps_healed_total|{means}" for means in ("wait", "page", "pull", "roll_up", "open_items")
        }
        assert (gateway["turnlog_nats_connected"], agent["turnlog_nats_connected"]) == (1, 1)
        projector = await scraped(f"http://127.0.0.1:{ports['projector']}")
        assert projector["turnlog_nats_connected"] == 1
        assert projector["turnlog_feed_horizon_age_seconds"] >= 0

        async def seen_to_run() -> bool:
            seen = await scraped(f"http://127.0.0.1:{ports['projector']}")
            return (seen["turnlog_turns_running"], seen["turnlog_turns_waiting"]) == (1, 0)

        await eventually(seen_to_run, "the projector counts the turn", timeout=30)
        assert worker["turnlog_worker_slots"] >= 1
        assert worker["turnlog_nats_published_total"] > 0
        files = [*(ROOT / "deploy/prometheus").iterdir(), *(ROOT / "deploy/grafana").iterdir()]
        used = set(re.findall(r"\b(?:turnlog|process)_[a-z_]+\b", "".join(file.read_text() for file in files)))

        async def every_name_exists() -> bool:
            urls = [cluster.agents[0].url, cluster.gateways[0].url]
            urls += [f"http://127.0.0.1:{port}" for port in ports.values()]
            unknown.clear()
            unknown.update(used - {sample.partition("|")[0] for url in urls for sample in await scraped(url)})
            return not unknown

        unknown: set[str] = set()
        try:
            await eventually(every_name_exists, "alerts and dashboard use metrics that are there", timeout=30)
        except AssertionError:
            raise AssertionError(f"in deploy/, but of no role: {unknown}") from None
        await ann.json("POST", f"/v1/sessions/{session}/turns/{turn}/interrupt", status=202)
        await terminal(stream, turn)
        await stream.close()
        again = await Stream(browser.http, path, {"Accept": "text/event-stream"}).opened()
        assert again.status == 200, "by the cookie"
        await again.close()
        await browser.close()

        async def nobody() -> bool:
            seen = await scraped(cluster.gateways[0].url)
            return (seen["turnlog_viewers"], seen["turnlog_open_item_bytes"]) == (0, 0)

        await eventually(nobody, "the gauges go back to 0")
        logs = cluster.logs()
        assert "http_request" in logs
        for secret in (ticket, cookie, token, made["session_token"], JWT_SECRET):
            assert secret not in logs
