"""Alert rules and dashboard as Prometheus reads them: each alert fires on what it is for, and on nothing less."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.system.tools import needs_promtool

pytestmark = [pytest.mark.system, needs_promtool]

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/prometheus/alerts.yml"
DASHBOARD = ROOT / "deploy/grafana/turnlog.json"

GATEWAY, WORKER, PROJECTOR = (f'job="turnlog-{role}",instance="i"' for role in ("gateway", "worker", "projector"))


def lasting(name: str, value: str, labels: str = PROJECTOR) -> dict[str, str]:
    """A series of half an hour, a sample every 15 s."""
    return {"series": f"{name}{{{labels}}}", "values": value if "+" in value or "x" in value else f"{value}x120"}


def _ends(failed: int, completed: int) -> list[dict[str, str]]:
    return [
        lasting("turnlog_legs_ended_total", f"0+{count}x120", f'{WORKER},status="{status}"')
        for status, count in (("failed", failed), ("completed", completed))
    ]


def _pool(idle: int) -> list[dict[str, str]]:
    return [
        lasting("turnlog_pool_connections", str(count), f'{GATEWAY},state="{state}"')
        for state, count in (("busy", 8), ("idle", idle))
    ]


def _sent(within: int, late: int) -> list[dict[str, str]]:
    return [
        lasting("turnlog_commit_to_send_seconds_bucket", f"0+{count}x120", f'{GATEWAY},le="{le}"')
        for le, count in (("0.1", within), ("2.5", within), ("10.0", within + late), ("+Inf", within + late))
    ]


CASES: dict[str, tuple[list[dict[str, str]], list[dict[str, str]]]] = {
    "TurnlogProcessDown": (
        [lasting("up", "0", WORKER)],
        [lasting("up", "1", WORKER), lasting("up", "0", 'job="other"')],
    ),
    "TurnlogNothingStarts": (
        [lasting("turnlog_turns_startable_seconds", "0+15x120")],
        [lasting("turnlog_turns_startable_seconds", "29")],
    ),
    "TurnlogTurnsOwnerless": (
        [lasting("turnlog_turns_ownerless", "1")],
        [lasting("turnlog_turns_ownerless", "1 1 1 0x120")],
    ),
    "TurnlogQueuesStopped": ([lasting("turnlog_turns_stopped", "2")], [lasting("turnlog_turns_stopped", "0")]),
    "TurnlogWorkersDie": (
        [lasting("turnlog_recoveries_total", "0+1x120", WORKER)],
        [lasting("turnlog_recoveries_total", "5", WORKER)],
    ),
    "TurnlogTurnsFail": (_ends(3, 7), _ends(1, 9)),
    "TurnlogFeedHeld": (
        [lasting("turnlog_feed_horizon_age_seconds", "61")],
        [lasting("turnlog_feed_horizon_age_seconds", "5")],
    ),
    "TurnlogProjectionBehind": (
        [lasting("turnlog_projection_lag_seconds", "61", f'{PROJECTOR},projection="usage"')],
        [lasting("turnlog_projection_lag_seconds", "1", f'{PROJECTOR},projection="usage"')],
    ),
    "TurnlogProjectionParked": (
        [lasting("turnlog_projection_parked_events", "1", f'{PROJECTOR},projection="usage"')],
        [lasting("turnlog_projection_parked_events", "0", f'{PROJECTOR},projection="usage"')],
    ),
    "TurnlogRelayBehind": ([lasting("turnlog_relay_lag_seconds", "61")], [lasting("turnlog_relay_lag_seconds", "6")]),
    "TurnlogNatsAway": (
        [lasting("turnlog_nats_connected", "0", GATEWAY)],
        [lasting("turnlog_nats_connected", "1 0 1x120", GATEWAY)],
    ),
    "TurnlogNatsDrops": (
        [lasting("turnlog_nats_dropped_total", "0+1x120", WORKER)],
        [lasting("turnlog_nats_dropped_total", "7", WORKER)],
    ),
    "TurnlogDeliverySlow": (_sent(90, 10), _sent(1000, 1)),
    "TurnlogPoolBusy": (_pool(0), _pool(1)),
    "TurnlogHooksBehind": (
        [lasting("turnlog_hooks_oldest_seconds", "601")],
        [lasting("turnlog_hooks_oldest_seconds", "599")],
    ),
}


def rules() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    return found


def ran(*argv: str | Path) -> str:
    """What promtool said; fails with it."""
    done = subprocess.run(["promtool", *argv], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _case(alert: str, rule: dict[str, Any], series: list[dict[str, str]], fires: bool) -> dict[str, Any]:
    # Nobody has to say which labels an alert has: how many there are is what is asked.
    count = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)'
    return {
        "name": f"{alert} {'fires' if fires else 'is silent'}",
        "interval": "15s",
        "input_series": series,
        "promql_expr_test": [
            {"expr": count, "eval_time": "29m", "exp_samples": [{"labels": "{}", "value": int(fires)}]}
        ],
    }


def test_each_alert_fires_on_what_it_is_for_and_not_on_less(tmp_path: Path) -> None:
    by_name = {rule["alert"]: rule for rule in rules()}
    assert set(CASES) == set(by_name), "each alert has a case"
    tests = [
        _case(alert, by_name[alert], series, fires)
        for alert, both in CASES.items()
        for fires, series in zip((True, False), both, strict=True)
    ]
    file = tmp_path / "tests.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "15s", "tests": tests}))
    assert "SUCCESS" in ran("test", "rules", file)


def test_prometheus_reads_its_configuration_and_the_dashboards_expressions(tmp_path: Path) -> None:
    ran("check", "rules", RULES)
    expressions = re.findall(r'"expr": ("(?:[^"\\]|\\.)*")', DASHBOARD.read_text())
    assert len(expressions) > 10
    records = [
        {"record": f"panel:{number}", "expr": re.sub(r"\$__\w+", "5m", json.loads(text))}
        for number, text in enumerate(expressions)
    ]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": records}]}))
    ran("check", "rules", file)
