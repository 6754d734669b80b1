"""A subscription that outlives connections."""

from collections.abc import Callable

from infra.nats.client import BrokerClient, Message


class Binding:
    """Interest in a subject, bound to one client after the other by the connection. Listeners are called without being
    awaited."""

    __slots__ = ("_forget", "_on_gap", "_on_message", "client", "closed", "sid", "stale", "subject")

    def __init__(
        self,
        subject: str,
        on_message: Callable[[Message], None],
        on_gap: Callable[[], None],
        *,
        forget: Callable[["Binding"], None],
    ) -> None:
        self.subject = subject
        self.client: BrokerClient | None = None
        self.sid = 0
        self.closed = False
        self.stale = False  # its owner takes it to be live, while it misses something
        self._on_message = on_message
        self._on_gap = on_gap
        self._forget = forget

    def close(self) -> None:
        """No listener is called after this. Does not wait and does not raise; the broker hears of it a moment later."""
        if not self.closed:
            self.closed = True
            self._forget(self)

    def deliver(self, message: Message) -> None:
        """Called by the client."""
        if not self.closed:
            self._on_message(message)

    def settle(self) -> None:
        """Live again: tells the gap, if its owner took it to be live before."""
        if self.stale:
            self.stale = False
            if not self.closed:
                self._on_gap()
