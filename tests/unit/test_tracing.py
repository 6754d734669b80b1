"""Spans that are off cost nothing; that cannot be made or written is said in one line."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from infra.settings import Settings
from infra.settings.groups import Trace
from services.tracing import NoTraceFile, TracingMissing, traced


def test_off_imports_nothing_of_it() -> None:
    code = (
        "import sys, services.gateway.main, services.agent.main, services.projector.main\n"
        "from services.tracing import traced\n"
        "from infra.settings import Settings\n"
        "with traced(Settings(), 'gateway') as traces: assert traces is None\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "infra.telemetry.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with (
        pytest.raises(TracingMissing, match=r"turnlog\[otel\]"),
        traced(Settings(trace=Trace(export="otlp")), "gateway"),
    ):
        pass


def test_a_file_must_be_named_and_writable(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="needs file"):
        Trace(export="file")
    with (
        pytest.raises(NoTraceFile, match="spans"),
        traced(Settings(trace=Trace(export="file", file=tmp_path / "nowhere" / "spans")), "agent"),
    ):
        pass


def test_what_ended_is_in_the_file_when_the_process_leaves(tmp_path: Path) -> None:
    """Also behind a parent that is none: then a trace begins."""
    file = tmp_path / "spans"
    with traced(Settings(trace=Trace(export="file", file=file)), "agent") as traces:
        assert traces is not None
        for parent in (None, "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"):
            span = traces.start("submit", parent, turn_id="t", session_id=None)
            span.end("queue_full")
            span.end()
            assert span.traceparent.count("-") == 3
        unsampled = traces.start("submit", "00-" + "a" * 32 + "-" + "b" * 16 + "-00")
        assert unsampled.traceparent.startswith("00-" + "a" * 32)
        unsampled.end()
    lines = file.read_text().splitlines()
    assert len(lines) == 3
    assert all('"turnlog.turn_id": "t"' in line and "queue_full" in line for line in lines)
