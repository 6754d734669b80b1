"""How many streams a gateway has open, for its metrics; both go back to 0 when the last client has left."""

from prometheus_client import CollectorRegistry, Gauge

from services.gateway.sse.hub import Hub


def measure_streams(hub: Hub, registry: CollectorRegistry) -> None:
    """Once a registry. Read when they are asked for."""
    viewers = Gauge("turnlog_viewers", "Open streams", registry=registry)
    viewers.set_function(lambda: hub.viewers)
    subscriptions = Gauge(
        "turnlog_subscriptions", "Sessions with open streams, one subscription each", registry=registry
    )
    subscriptions.set_function(lambda: hub.sessions)
