"""The metrics of one process: a registry of its own, so that tests and two roles in one process do not share counts."""

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """Hands its registry to whoever defines counters: `Counter("turnlog_…", "…", registry=metrics.registry)`.

    Labels are bounded sets (role, status, reason); never an id, because each would be a series for ever.
    """

    def __init__(self, *, process: bool = True) -> None:
        """`process` adds what Prometheus clients tell of any process: memory, CPU, descriptors, collections."""
        self.registry = CollectorRegistry(auto_describe=True)
        if process:
            ProcessCollector(registry=self.registry)
            PlatformCollector(registry=self.registry)
            GCCollector(registry=self.registry)

    def text(self) -> bytes:
        """What `GET /metrics` answers, of type CONTENT_TYPE."""
        return generate_latest(self.registry)
