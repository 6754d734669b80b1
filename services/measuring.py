"""Metrics that several roles have: the command pipeline, the broker, a pool of connections; and how a role without HTTP
serves them. Read when they are asked for, wherever that is possible."""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Gauge, Histogram, start_http_server
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from infra.nats.connection import BrokerConnection
from infra.nats.outbox import Outbox
from infra.pipeline.pipeline import Pipeline
from infra.postgres.pool import Pool
from infra.telemetry.metrics import Metrics


def measure_pipeline(pipeline: Pipeline, registry: CollectorRegistry) -> None:
    """Sizes of the groups that were committed, and what waits."""
    sizes = Histogram(
        "turnlog_group_commands",
        "Commands in one committed transaction",
        registry=registry,
        buckets=(1, 2, 4, 8, 16, 32, 64, 128),
    )
    pipeline.observe(sizes.observe)
    pending = Gauge("turnlog_commands_pending", "Commands of this process without an answer yet", registry=registry)
    pending.set_function(lambda: pipeline.pending)


def measure_broker(broker: BrokerConnection, registry: CollectorRegistry) -> None:
    """Whether NATS is there."""
    up = Gauge("turnlog_nats_connected", "1 while this process is connected to NATS", registry=registry)
    up.set_function(lambda: broker.is_connected)


class _Published(Collector):
    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def collect(self) -> Iterator[CounterMetricFamily]:
        outbox = self._outbox
        yield CounterMetricFamily("turnlog_nats_published", "Messages handed to NATS", value=outbox.published)
        yield CounterMetricFamily(
            "turnlog_nats_dropped", "Messages dropped because too many waited for NATS", value=outbox.lost
        )


def measure_outbox(outbox: Outbox, registry: CollectorRegistry) -> None:
    """What goes out to NATS, and what waits for it."""
    waiting = Gauge("turnlog_nats_waiting", "Messages that wait for NATS", registry=registry)
    waiting.set_function(lambda: len(outbox))
    registry.register(_Published(outbox))


def measure_pool(pool: Pool, registry: CollectorRegistry) -> None:
    """The pool for queries."""
    connections = Gauge("turnlog_pool_connections", "Connections of the pool for queries", ["state"], registry=registry)
    connections.labels("idle").set_function(pool.get_idle_size)
    connections.labels("busy").set_function(lambda: pool.get_size() - pool.get_idle_size())


@contextmanager
def served(metrics: Metrics, port: int, host: str = "127.0.0.1") -> Iterator[None]:
    """`/metrics` as long as the block; nothing where the port is 0."""
    if port == 0:
        yield
        return
    server, thread = start_http_server(port, host, metrics.registry)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(1.0)
