"""Metrics of a projector: what it applied, and the state of the whole installation: how far each projection and the
relay lie behind, what holds the feed, what waits and runs."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import Counter, Gauge
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from domain.errors import StoreUnavailable
from infra.postgres.feed_slots import slot_states
from infra.postgres.hook_jobs import PostgresHookJobs
from infra.postgres.operations import PostgresOperations, TurnCounts
from infra.postgres.pool import Pool
from infra.telemetry.metrics import Metrics
from services.measuring import served
from services.projector.horizon import HorizonAge
from services.projector.relay import NAME as RELAY
from services.projector.relay import Relay

_LOOK_SECONDS = 5.0


_TURNS = {
    "waiting": "Turns in queues",
    "stopped": "Of those, turns in queues that a failed or interrupted turn has paused",
    "startable_seconds": "For how long the oldest turn waits that nothing keeps from starting",
    "running": "Turns that run",
    "paused": "Turns that wait for people",
    "ownerless": "Running turns that no worker holds",
    "longest_seconds": "Age of the oldest leg that runs",
}
assert set(_TURNS) == set(TurnCounts.__struct_fields__)


class _Republished(Collector):
    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def collect(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(
            "turnlog_relay_republished", "Events that EVENTS lacked", value=self._relay.republished
        )


class Measures:
    """Looks at the database now and then, as long as `run` runs. Every projector tells the same of the installation:
    take the maximum over them, not the sum."""

    def __init__(self, metrics: Metrics, pool: Pool, poll: float, now: Callable[[], float]) -> None:
        self._metrics = metrics
        self._pool = pool
        self._pause = max(poll, _LOOK_SECONDS)
        registry, labels = metrics.registry, ["projection"]
        self._applied = Counter(
            "turnlog_projection_events_total", "Events this process applied", labels, registry=registry
        )
        self._events = Gauge("turnlog_projection_lag_events", "Events not applied yet", labels, registry=registry)
        self._seconds = Gauge("turnlog_projection_lag_seconds", "Age of the oldest of them", labels, registry=registry)
        self._parked = Gauge("turnlog_projection_parked_events", "Events set aside", labels, registry=registry)
        self._operations = PostgresOperations(pool)
        self._horizon = HorizonAge(now)
        self._age = Gauge(
            "turnlog_feed_horizon_age_seconds",
            "For how long the oldest open transaction of the server has held the feed",
            registry=registry,
        )
        self._relay_events = Gauge("turnlog_relay_lag_events", "Events the relay has not looked at", registry=registry)
        self._relay_seconds = Gauge("turnlog_relay_lag_seconds", "Age of the oldest of them", registry=registry)
        self._jobs = PostgresHookJobs(pool)
        self._hooks_open = Gauge("turnlog_hooks_open", "Background hooks that are not done", registry=registry)
        self._hooks_age = Gauge("turnlog_hooks_oldest_seconds", "Age of the oldest of them", registry=registry)
        self._turns = {
            name: Gauge(f"turnlog_turns_{name}", meaning, registry=registry) for name, meaning in _TURNS.items()
        }

    def relaying(self, relay: Relay) -> None:
        """Once."""
        self._metrics.registry.register(_Republished(relay))

    def counting(self, name: str) -> Callable[[int], None]:
        """What a runner calls with the number of events of a page."""
        counter = self._applied.labels(name)
        return lambda events: counter.inc(events)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                for state in await slot_states(self._pool):
                    if state.slot == "serving":
                        self._events.labels(state.name).set(state.lag_events)
                        self._seconds.labels(state.name).set(state.lag_seconds)
                        self._parked.labels(state.name).set(state.parked)
                await self._look()
            except StoreUnavailable:
                pass
            await asyncio.sleep(self._pause)

    async def _look(self) -> None:
        self._age.set(self._horizon.look(*await self._operations.horizon()))
        behind = await self._operations.behind(RELAY)
        self._relay_events.set(behind.events)
        self._relay_seconds.set(behind.seconds)
        hooks, age = await self._jobs.waiting()
        self._hooks_open.set(hooks)
        self._hooks_age.set(age)
        turns = await self._operations.turns()
        for name, gauge in self._turns.items():
            gauge.set(getattr(turns, name))

    @contextmanager
    def served(self, port: int, host: str) -> Iterator[None]:
        """`/metrics` as long as the block; nothing where the port is 0."""
        with served(self._metrics, port, host):
            yield
