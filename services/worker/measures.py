"""Metrics of a worker's turns."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from services.worker.slots import Slots


class _Counted(Collector):
    def __init__(self, slots: Slots) -> None:
        self._slots = slots

    def collect(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(
            "turnlog_recoveries", "Turns taken over from a worker that died", value=self._slots.recoveries
        )


def measure_turns(slots: Slots, registry: CollectorRegistry) -> None:
    """Once a registry; read when they are asked for."""
    active = Gauge("turnlog_active_turns", "Turns that this worker executes", registry=registry)
    active.set_function(lambda: len(slots.running))
    registry.register(_Counted(slots))
