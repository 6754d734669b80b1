"""Metrics of a projector: what it applied, and how far every projection of the installation lies behind."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import Counter, Gauge, start_http_server

from domain.errors import StoreUnavailable
from infra.postgres.feed_slots import slot_states
from infra.postgres.pool import Pool
from infra.telemetry.metrics import Metrics

_LOOK_SECONDS = 5.0


class Measures:
    """Looks at the slots now and then, as long as `run` runs."""

    def __init__(self, metrics: Metrics, pool: Pool, poll: float) -> None:
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
            except StoreUnavailable:
                pass
            await asyncio.sleep(self._pause)

    @contextmanager
    def served(self, port: int) -> Iterator[None]:
        """`/metrics` on loopback as long as the block; nothing where the port is 0."""
        if port == 0:
            yield
            return
        server, thread = start_http_server(port, "127.0.0.1", self._metrics.registry)
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
