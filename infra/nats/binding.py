"""A subscription that outlives connections."""

import asyncio
from collections.abc import Callable

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as ClientSubscription


class Binding:
    """Interest in a subject, bound to one client after the other by the connection. Listeners are called without being
    awaited."""

    __slots__ = (
        "_forget",
        "_gap_waits",
        "_on_gap",
        "_on_message",
        "client",
        "closed",
        "stale",
        "subject",
        "subscription",
    )

    def __init__(
        self,
        subject: str,
        on_message: Callable[[Msg], None],
        on_gap: Callable[[], None],
        *,
        forget: Callable[["Binding"], None],
    ) -> None:
        self.subject = subject
        self.client: Client | None = None
        self.subscription: ClientSubscription | None = None
        self.closed = False
        self.stale = False  # its owner takes it to be live, while it misses something
        self._on_message = on_message
        self._on_gap = on_gap
        self._forget = forget
        self._gap_waits = False

    def close(self) -> None:
        """No listener is called after this. Does not wait and does not raise; the broker hears of it a moment later."""
        if not self.closed:
            self.closed = True
            self._forget(self)

    async def deliver(self, message: Msg) -> None:
        """Called by the client, one message at a time."""
        if not self.closed:
            self._on_message(message)

    def dropped(self) -> None:
        """The client dropped a message because too many waited. Drops come in bursts: one gap for those of one loop
        step, told after them, because what is read again before a drop does not hold what it lost."""
        if not self._gap_waits:
            self._gap_waits = True
            asyncio.get_running_loop().call_soon(self.gap)

    def settle(self) -> None:
        """Live again: tells the gap, if its owner took it to be live before."""
        if self.stale:
            self.stale = False
            self.gap()

    def gap(self) -> None:
        self._gap_waits = False
        if not self.closed:
            self._on_gap()
