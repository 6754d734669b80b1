"""Settings: variables over the file over defaults, and clear words about what is wrong."""

import os
from pathlib import Path

import pytest

from infra.settings import BadSettings, SettingMissing, Settings, explain, load, unknown_variables
from infra.settings.explain import MASK

DSN = "postgresql://turnlog_agent:marker@127.0.0.1:5432/turnlog"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("TURNLOG_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_defaults_are_the_documented_ones() -> None:
    settings = load()
    limits = settings.limits
    assert (limits.input_bytes, limits.event_bytes, limits.tool_result_bytes) == (262_144, 524_288, 65_536)
    assert (limits.queue_depth, limits.replay_page_bytes, limits.attachment_bytes) == (100, 524_288, 20_971_520)
    assert (limits.archive_entries, limits.archive_unpacked_bytes, limits.archive_ratio) == (200, 104_857_600, 100)
    turn = settings.turn
    assert (turn.lease_seconds, turn.heartbeat_seconds, turn.attempts) == (15.0, 5.0, 3)
    assert (turn.timeout_seconds, turn.silence_seconds) == (3600.0, 600.0)
    gateway = settings.gateway
    assert (gateway.viewer_buffer_bytes, gateway.comment_seconds, gateway.drain_seconds) == (1_048_576, 10.0, 0.0)
    assert gateway.user_timeout_seconds == 30.0
    assert settings.postgres.lock_timeout_seconds == 2.0
    assert (settings.namespace, settings.auth) == ("turnlog", "jwt")


def test_the_command_line_wins_over_variables_over_the_file(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (elsewhere / "turnlog.toml").write_text(
        'namespace = "filed"\n[limits]\nqueue_depth = 1\ninput_bytes = "2KiB"\n[gateway]\nport = 1\n'
    )
    monkeypatch.setenv("TURNLOG_LIMITS_QUEUE_DEPTH", "2")
    monkeypatch.setenv("TURNLOG_GATEWAY_PORT", "2")
    monkeypatch.setenv("TURNLOG_AGENT_URLS", "http://a:1, http://b:2")
    monkeypatch.setenv("TURNLOG_POSTGRES_AGENT", DSN)
    overrides = {"gateway": {"port": 3}}
    settings = load(**overrides)
    assert settings.namespace == "filed"
    assert (settings.limits.queue_depth, settings.limits.input_bytes) == (2, 2048)
    assert settings.gateway.port == 3
    assert settings.agent.urls == ("http://a:1", "http://b:2")
    found = {line.name: (line.value, line.source) for line in explain(settings, overrides)}
    assert found["namespace"] == ("filed", "turnlog.toml")
    assert found["limits.input_bytes"] == ("2048", "turnlog.toml")
    assert found["limits.queue_depth"] == ("2", "TURNLOG_LIMITS_QUEUE_DEPTH")
    assert found["gateway.port"] == ("3", "command line")
    assert found["gateway.host"] == ("127.0.0.1", "default")
    assert found["agent.urls"] == ("http://a:1,http://b:2", "TURNLOG_AGENT_URLS")
    assert found["postgres.agent"] == (MASK, "TURNLOG_POSTGRES_AGENT")


def test_no_secret_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLOG_POSTGRES_AGENT", DSN)
    monkeypatch.setenv("TURNLOG_NATS_AGENT_PASSWORD", "marker")
    monkeypatch.setenv("TURNLOG_AGENT_SECRET", "marker")
    monkeypatch.setenv("TURNLOG_JWT_SECRET", "marker" * 8)
    settings = load()
    assert "marker" not in repr(settings)
    assert not any("marker" in line.value for line in explain(settings))
    assert settings.dsn("agent") == DSN
    assert settings.nats_credentials("agent") == ("turnlog-agent", "marker")
    assert settings.service_secret() == "marker"


def test_what_is_wrong_is_named_without_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLOG_LIMITS_QUEUE_DEPHT", "marker")
    monkeypatch.setenv("TURNLOG_GATEWAY_PORT", "marker")
    monkeypatch.setenv("TURNLOG_JWT_SECRET", "marker")
    monkeypatch.setenv("TURNLOG_TURN_LEASE_SECONDS", "6")
    with pytest.raises(BadSettings) as caught:
        load()
    text = str(caught.value)
    assert "TURNLOG_LIMITS_QUEUE_DEPHT" in text
    assert "TURNLOG_GATEWAY_PORT" in text
    assert "at least 32 bytes" in text
    assert "at most half of lease_seconds" in text
    assert "marker" not in text
    assert "\n" not in text


def test_a_broken_or_missing_file_is_named(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (elsewhere / "turnlog.toml").write_text("namespace = \n")
    with pytest.raises(BadSettings, match=r"turnlog\.toml is not valid TOML"):
        load()
    monkeypatch.setenv("TURNLOG_CONFIG", str(elsewhere / "nowhere.toml"))
    with pytest.raises(BadSettings, match="which is no file"):
        load()


@pytest.mark.parametrize("name", ["", "Upper", "a.b", "a*", "a>", "a b", "1a"])
def test_a_namespace_is_a_safe_token(name: str) -> None:
    with pytest.raises(BadSettings, match="namespace"):
        load(namespace=name)


def test_a_missing_credential_names_its_variable() -> None:
    with pytest.raises(SettingMissing, match="TURNLOG_POSTGRES_WORKER is not set"):
        load().dsn("worker")


def test_typing_errors_in_variables_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLOG_NAMESPCE", "x")
    monkeypatch.setenv("TURNLOG_CONFIG", "turnlog.toml")
    assert "TURNLOG_NAMESPCE" in unknown_variables()
    assert "TURNLOG_CONFIG" not in unknown_variables()


def test_settings_do_not_change() -> None:
    settings = load()
    with pytest.raises(ValueError, match="frozen"):
        settings.limits.queue_depth = 1
    with pytest.raises(ValueError, match="frozen"):
        settings.namespace = "x"


def test_every_setting_says_what_it_is() -> None:
    assert [line.name for line in explain(Settings()) if not line.description] == []
