"""compose.yaml, Dockerfile and what they mount: checked for structure, since no container engine runs where CI does."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from infra.settings import Settings, explain, load

ROOT = Path(__file__).parents[2]
ROLES = ("gateway", "agent", "worker", "projector")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    return found


def test_there_are_two_of_each_role_three_brokers_a_database_and_a_proxy(services: dict[str, Any]) -> None:
    assert set(services) == {"postgres", "nats-1", "nats-2", "nats-3", "migrate", "proxy", *ROLES}
    assert {role: services[role]["deploy"]["replicas"] for role in ROLES} == dict.fromkeys(ROLES, 2)
    assert {role: services[role]["command"] for role in ROLES} == {role: [role] for role in ROLES}
    assert re.fullmatch(r"postgres:1[5-8]", services["postgres"]["image"])


def test_it_uses_the_names_of_the_settings(services: dict[str, Any]) -> None:
    known = {line.variable for line in explain(Settings())}
    used = {
        name for service in services.values() for name in service.get("environment", {}) if name.startswith("TURNLOG_")
    }
    assert used - known == set()


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_what_it_needs_and_nobody_elses_credentials(
    services: dict[str, Any], role: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("TURNLOG_")]:
        monkeypatch.delenv(name)
    for name, value in services[role]["environment"].items():
        monkeypatch.setenv(name, re.sub(r"\$\{\w+:\?[^}]*\}", "p" * 32, value))
    settings = load()
    assert settings.namespace == "turnlog"
    assert settings.dsn(role).startswith(f"postgresql://turnlog_{role}:")  # type: ignore[arg-type]
    assert settings.nats_credentials(role)[0] == f"turnlog-{role}"  # type: ignore[arg-type]
    secrets = {name for group in ("postgres", "nats") for name in _set_secrets(getattr(settings, group))}
    assert secrets == {role, f"{role}_password"}
    assert (settings.agent.secret is not None) == (role in ("gateway", "agent"))


def _set_secrets(group: BaseModel) -> set[str]:
    return {name for name, value in group if type(value).__name__ == "SecretStr"}


def test_no_secret_stands_in_the_file_and_all_are_in_the_example() -> None:
    text = (ROOT / "compose.yaml").read_text()
    asked = set(re.findall(r"\$\{(\w+):\?", text))
    example = set(re.findall(r"^(\w+)=$", (ROOT / "deploy/env.example").read_text(), re.MULTILINE))
    assert asked == example
    assert not re.search(r"\$\{\w+(?!:\?|\w)", text)
    assert not re.search(r"(?i)(password|secret): +[^$\s]", text)


def test_what_is_mounted_is_there(services: dict[str, Any]) -> None:
    mounts = [volume for service in services.values() for volume in service.get("volumes", [])]
    files = {mount.split(":")[0] for mount in mounts if mount.startswith("./")}
    assert {file: (ROOT / file).is_file() for file in files} == dict.fromkeys(files, True)


def test_the_brokers_get_what_the_embedded_one_gets() -> None:
    generated = runpy.run_path(str(ROOT / "deploy/nats/generate.py"))["text"]()
    assert (ROOT / "deploy/nats/turnlog.conf").read_text() == generated


def test_nats_server_accepts_its_configuration() -> None:
    passwords = {f"NATS_{role.upper()}_PASSWORD": "p1" for role in (*ROLES, "operator")}
    done = subprocess.run(
        [Path(sys.prefix) / "bin" / "nats-server", "-t", "-c", ROOT / "deploy/nats/turnlog.conf"],
        env={"NATS_NAME": "nats-1", **passwords},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "is valid" in done.stderr + done.stdout
    assert done.returncode == 0


def test_the_proxy_does_not_buffer_or_log_queries() -> None:
    text = (ROOT / "deploy/nginx/turnlog.conf").read_text()
    for line in ("proxy_buffering off;", "gzip off;", "proxy_http_version 1.1;", "proxy_read_timeout 60s;"):
        assert line in text
    assert "proxy_set_header Idempotency-Key $idempotency_key;" in text, "what is tried again has a key"
    log_format = re.search(r"log_format without_query (.*);", text)
    assert log_format is not None
    assert "$uri" in log_format[1]
    assert not re.search(r"\$(request|request_uri|args|query_string)\b", log_format[1])


def test_the_image_has_two_stages_a_locked_environment_and_no_root() -> None:
    text = (ROOT / "Dockerfile").read_text()
    stages = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    assert len(stages) == 2
    assert "--require-hashes requirements/runtime.lock" in stages[0]
    assert re.search(r"^USER (?!0\b|root)\w+", stages[1], re.MULTILINE)
    assert "COPY --from=build" in stages[1]
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    sources = [word for line in copied for word in line.split()]
    assert {source: (ROOT / source).exists() for source in sources} == dict.fromkeys(sources, True)
    allowed = (ROOT / ".dockerignore").read_text()
    assert all(f"!{source.split('/')[0]}" in allowed for source in sources)


def test_each_alert_has_its_paragraph_in_the_runbook() -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"][0]["rules"]
    headings = set(re.findall(r"^## (Turnlog\w+)$", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE))
    assert {rule["alert"] for rule in rules} == headings
    assert {rule["annotations"]["runbook"] for rule in rules} == {
        f"docs/runbook.md#{name.lower()}" for name in headings
    }
