"""Each process (and each test) counts by itself."""

from prometheus_client import Counter

from infra.telemetry.metrics import Metrics


def test_registries_are_apart_and_written_as_text() -> None:
    one, other = Metrics(process=False), Metrics(process=False)
    Counter("turnlog_things", "Things.", registry=one.registry).inc(3)
    assert b"turnlog_things_total 3.0" in one.text()
    assert other.text() == b""


def test_a_process_tells_of_its_memory() -> None:
    assert b"process_resident_memory_bytes" in Metrics().text()
