"""An outside consumer of committed events, as somebody else's program would be: a plain durable pull consumer of
JetStream, with nats-py alone. What it lacks it knows from the sequences."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import ConsumerConfig, DeliverPolicy
from nats.js.errors import Error as JetStreamError

from domain.events.envelope import peek
from infra.embedded import EmbeddedNats
from infra.nats.subjects import inbox_prefix, stream_names

NAMESPACE = "turnlog"


class Outsider:
    """`got` lives as long as the test: what this consumer has taken over for good, by session, in the order of
    arrival."""

    def __init__(self, server: EmbeddedNats) -> None:
        self.got: dict[str, list[int]] = {}
        self._server = server

    def of(self, session: str) -> set[int]:
        return set(self.got.get(session, ()))

    def holes(self, session: str) -> list[int]:
        """What is missing below the highest sequence."""
        seen = self.of(session)
        return [sequence for sequence in range(1, max(seen, default=0)) if sequence not in seen]

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Outsider"]:
        """Consumes as long as the block; the broker keeps its place meanwhile."""
        task = asyncio.create_task(self._consume())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Client]:
        user, password = self._server.credentials("operator")
        client = await nats.connect(
            self._server.url,
            user=user,
            password=password,
            inbox_prefix=inbox_prefix(NAMESPACE, "operator").encode(),
            allow_reconnect=False,
            error_cb=_ignore,
        )
        try:
            yield client
        finally:
            with suppress(NatsError):
                await client.close()

    async def made(self) -> None:
        """The durable consumer is there; its place begins at the oldest that EVENTS holds."""
        async with self.connected() as client:
            while True:
                with suppress(JetStreamError, NatsError):
                    await client.jetstream().pull_subscribe(
                        f"{NAMESPACE}.session.*.event", durable="outside", stream=stream_names(NAMESPACE)[0],
                        config=ConsumerConfig(deliver_policy=DeliverPolicy.ALL, ack_wait=5),
                    )  # fmt: skip
                    return
                await asyncio.sleep(0.05)

    async def _consume(self) -> None:
        while True:
            # Whatever goes wrong with the broker: connect again, make the consumer if it is gone, go on.
            with suppress(JetStreamError, NatsError, OSError, TimeoutError):
                await self.made()
                async with self.connected() as client:
                    stream = stream_names(NAMESPACE)[0]
                    pulls = await client.jetstream().pull_subscribe_bind("outside", stream)
                    while True:
                        with suppress(TimeoutError):
                            for message in await pulls.fetch(100, timeout=0.5):
                                session = message.subject.split(".")[2]
                                self.got.setdefault(session, []).append(peek(message.data).sequence)
                                await message.ack()
                        if not client.is_connected:
                            break
            await asyncio.sleep(0.05)


async def _ignore(error: Exception) -> None: ...
