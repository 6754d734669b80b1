"""What waits to be published: callers never wait for the broker, and never hear of it."""

import asyncio
from collections import deque
from typing import NamedTuple

from nats.aio.client import Client
from nats.errors import Error as NatsError

from infra.nats.cancellation import heed_cancellation
from infra.nats.connection import BrokerConnection
from infra.telemetry.traces import Span

_FAIR = 256


class Outgoing(NamedTuple):
    """One message: `headers` as nats-py takes them."""

    subject: str
    payload: bytes
    headers: dict[str, str] | None
    span: Span | None = None


class Outbox:
    """Bounded by messages and bytes. When it is full the oldest goes: the newest shows readers the jump that makes
        them look.

    One task (`run`) publishes in the order of `put`. It holds messages while the broker is away, because the readers'
    connections may be up when ours is not.
    """

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        self._max_messages = connection.options.outbox_messages
        self._max_bytes = connection.options.outbox_bytes
        self._waiting: deque[Outgoing] = deque()
        self._bytes = 0
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self.published = 0
        self.lost = 0
        """Dropped because too much waited, or refused by the client."""

    def __len__(self) -> int:
        return len(self._waiting)

    def put(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None, span: Span | None = None
    ) -> None:
        """Does not wait and does not raise. `span` ends when the message is out, or is dropped."""
        self._waiting.append(Outgoing(subject, payload, headers, span))
        self._bytes += len(payload)
        while len(self._waiting) > self._max_messages or (self._bytes > self._max_bytes and len(self._waiting) > 1):
            dropped = self._waiting.popleft()
            self._bytes -= len(dropped.payload)
            self.lost += 1
            if dropped.span is not None:
                dropped.span.end("dropped")
        self._filled.set()
        self._emptied.clear()

    async def emptied(self) -> None:
        """Waits until everything was handed to the broker's connection and the broker answered after it."""
        await self._emptied.wait()
        await self._connection.connected()
        await self._connection.flush()

    async def run(self) -> None:
        """Publishes until cancelled."""
        while True:
            await self._filled.wait()
            client = await self._connection.connected()
            # nats-py waits here when its own buffer is full and the broker does not read: then messages wait with us,
            # bounded.
            for _ in range(_FAIR):
                if not self._waiting or not client.is_connected:
                    break
                message = self._waiting.popleft()
                self._bytes -= len(message.payload)
                await self._publish(client, message)
                heed_cancellation()
            if not self._waiting:
                self._filled.clear()
                self._emptied.set()
            await asyncio.sleep(0)

    async def _publish(self, client: Client, message: Outgoing) -> None:
        try:
            await client.publish(message.subject, message.payload, headers=message.headers)
        except (NatsError, OSError):
            self.lost += 1
            if message.span is not None:
                message.span.end("refused")
        else:
            self.published += 1
            if message.span is not None:
                message.span.end()
