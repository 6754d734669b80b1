"""Exit codes and one-line reasons of the command line, in this process."""

import json
import os
from pathlib import Path

import pytest

from services.cli.main import run

COMMANDS = ("up", "gateway", "agent", "worker", "projector", "migrate", "chat", "tail", "status", "config", "version")


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("TURNLOG_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nope"], 'Unknown command "nope"'),
        (["gateway", "--port", "x"], "--port"),
        (["up", "--gateways", "0"], "--gateways"),
        (["tail"], "--session"),
        (["tail", "x", "--after", "-1"], "--after"),
        (["tail", "x", "--url", "http://127.0.0.1:9"], "no answer from http://127.0.0.1:9"),
        (["chat", "--url", "http://127.0.0.1:9"], "no answer from http://127.0.0.1:9"),
        (["status", "--url", "http://127.0.0.1:9"], "no answer from http://127.0.0.1:9"),
        (["migrate"], "TURNLOG_POSTGRES_ADMIN"),
    ],
)
def test_what_cannot_run_says_so_in_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    line = err.splitlines()[-1]
    assert line.startswith("turnlog: ")
    assert said in line


def test_an_unusable_setting_is_named_without_its_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TURNLOG_GATEWAY_PORT", "not-a-port")
    assert run(["config"]) == 2
    err = capsys.readouterr().err
    assert "TURNLOG_GATEWAY_PORT" in err
    assert "not-a-port" not in err


def test_the_list_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f" {command} " in out for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    assert f"turnlog {command}" in capsys.readouterr().out


def test_config_masks_secrets_and_names_sources(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = "s" * 40
    monkeypatch.setenv("TURNLOG_JWT_SECRET", secret)
    assert run(["config", "--json"]) == 0
    out = capsys.readouterr().out
    assert secret not in out
    sources = {setting["name"]: setting["source"] for setting in json.loads(out)}
    assert (sources["jwt.secret"], sources["gateway.port"]) == ("TURNLOG_JWT_SECRET", "default")


def test_config_finds_a_variable_that_is_no_setting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TURNLOG_NAMESPAEC", "x")
    assert run(["config"]) == 1
    assert "TURNLOG_NAMESPAEC" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version", "--json"]) == 0
    assert {"turnlog", "python", "asyncpg"} <= set(json.loads(capsys.readouterr().out))
