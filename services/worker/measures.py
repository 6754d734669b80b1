"""Metrics of a worker's turns."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from services.worker.hooks.jobs import Jobs
from services.worker.slots import Slots


class _Counted(Collector):
    def __init__(self, slots: Slots) -> None:
        self._slots = slots

    def collect(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(
            "turnlog_recoveries", "Turns taken over from a worker that died", value=self._slots.recoveries
        )
        ended = CounterMetricFamily(
            "turnlog_legs_ended", "Executions of turns, by what became of the turn", labels=["status"]
        )
        for status, count in self._slots.ended.items():
            ended.add_metric([status], count)
        yield ended


def measure_turns(slots: Slots, registry: CollectorRegistry) -> None:
    """Once a registry; read when they are asked for."""
    active = Gauge("turnlog_active_turns", "Turns that this worker executes", registry=registry)
    active.set_function(lambda: len(slots.running))
    most = Gauge("turnlog_worker_slots", "Turns that this worker would execute at the same time", registry=registry)
    most.set(slots.count)
    registry.register(_Counted(slots))


class _Tried(Collector):
    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def collect(self) -> Iterator[CounterMetricFamily]:
        runs = CounterMetricFamily(
            "turnlog_hook_runs", "Tries of background hooks, by what became of them", labels=["outcome"]
        )
        for outcome, count in self._jobs.counts.items():
            runs.add_metric([outcome], count)
        yield runs


def measure_hooks(jobs: Jobs, registry: CollectorRegistry) -> None:
    """Once a registry."""
    registry.register(_Tried(jobs))
