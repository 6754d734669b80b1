"""Metrics of a gateway's streams. What counts open things goes back to 0 when the last client has left."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from services.gateway.sse.hub import Hub


class _Counted(Collector):
    """Counters that the hub keeps itself."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def collect(self) -> Iterator[CounterMetricFamily]:
        meter = self._hub.meter
        yield CounterMetricFamily("turnlog_replay_pages", "Replay pages read for streams", value=meter.pages)
        healed = CounterMetricFamily("turnlog_gaps_healed", "Gaps, by what closed them", labels=["means"])
        for means, count in meter.healed.items():
            healed.add_metric([means], count)
        yield healed


def measure_streams(hub: Hub, registry: CollectorRegistry) -> None:
    """Once a registry. Read when they are asked for, but for the histogram."""
    viewers = Gauge("turnlog_viewers", "Open streams", registry=registry)
    viewers.set_function(lambda: hub.viewers)
    subscriptions = Gauge(
        "turnlog_subscriptions", "Sessions with open streams, one subscription each", registry=registry
    )
    subscriptions.set_function(lambda: hub.sessions)
    texts = Gauge("turnlog_open_item_bytes", "Texts of open items kept for viewers who join", registry=registry)
    texts.set_function(lambda: hub.room.used)
    tails = Gauge("turnlog_tail_bytes", "Newest events kept for streams that come back", registry=registry)
    tails.set_function(lambda: hub.tails.used)
    sent = Histogram(
        "turnlog_commit_to_send_seconds",
        "Age of committed events when they are handed to viewers, by the clocks of two machines",
        registry=registry,
        buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 6.0),
    )
    hub.meter.sent = sent.observe
    registry.register(_Counted(hub))
