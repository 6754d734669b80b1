"""How a process reaches the broker."""

from dataclasses import dataclass, field

from infra.nats.subjects import inbox_prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """Servers are tried in random order. Times in seconds."""

    namespace: str
    role: str
    """With the namespace it names our inboxes and our connection in the broker's monitoring."""

    servers: tuple[str, ...]
    """`nats://host:port`, without credentials: they would stand in log lines."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)

    pause_min: float = 0.05
    pause_max: float = 2.0
    """Between tries; drawn at random below a doubling bound, so that not all processes return in the same instant."""

    outbox_messages: int = 50_000
    outbox_bytes: int = 16 << 20
    """What may wait to be published before the oldest is dropped."""

    replicas: int = 1
    """Of each stream: 3 on a cluster of three or more."""

    @property
    def name(self) -> str:
        return f"{self.namespace}-{self.role}"

    @property
    def inbox_prefix(self) -> str:
        return inbox_prefix(self.namespace, self.role)
