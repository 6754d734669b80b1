"""The work queue `{ns}.hooks`: it delivers background jobs to workers, each to one at a time. What it loses is told
again by whoever finds it in the database."""

from collections.abc import Awaitable, Callable

import msgspec
import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, Header

from infra.nats.cancellation import heed_cancellation
from infra.nats.client import BrokerClient
from infra.nats.connection import BrokerConnection, NotConnected
from infra.nats.outbox import Outbox
from infra.nats.subjects import Subjects

_log = structlog.get_logger(__name__)

_DURABLE = "hooks"
_DELIVERIES = 20
"""Of one message; then the database's poll tells the job again."""

_BROKEN = (NotConnected, NatsError, OSError, TimeoutError)


class Job(msgspec.Struct, frozen=True):
    """What a message says: the database has the rest."""

    job_id: str
    agent_id: str
    hook: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Job).decode


class Delivery:
    """One message. Nothing here raises: an answer that is lost costs a further delivery."""

    def __init__(self, job: Job, message: Msg) -> None:
        self.job = job
        self._message = message

    async def done(self) -> None:
        """Nobody needs it any more."""
        await _quietly(self._message.ack)

    async def later(self, seconds: float) -> None:
        """Deliver it again, perhaps to another worker."""
        await _quietly(lambda: self._message.nak(delay=seconds))

    async def under_way(self) -> None:
        """Do not deliver it again yet."""
        await _quietly(self._message.in_progress)


class HookQueue:
    """One a process. `patience`: seconds without a sign after which a delivered message goes to another worker; the
    first worker of an installation decides it."""

    def __init__(self, connection: BrokerConnection, outbox: Outbox, patience: float) -> None:
        self._connection = connection
        self._outbox = outbox
        self._patience = patience
        self._subjects = Subjects(connection.options.namespace)
        self._client: BrokerClient | None = None
        self._pull: JetStreamContext.PullSubscription | None = None

    def tell(self, job: Job, *, first: bool) -> None:
        """Does not wait and does not raise. `first`: right after the commit; a repeat of that is dropped by the
        broker."""
        headers = {Header.MSG_ID.value: job.job_id} if first else None
        self._outbox.put(self._subjects.hooks, _encode(job), headers)

    async def fetch(self, limit: int, seconds: float) -> list[Delivery]:
        """What is there, waiting up to `seconds` for the first; nothing while the broker or its stream is away. Raises
        nothing of the broker's."""
        try:
            client = await self._connection.connected()
            if self._pull is None or self._client is not client:
                self._pull = await self._bound(client)
                self._client = client
            messages = await self._pull.fetch(limit, timeout=seconds)
        except TimeoutError:
            heed_cancellation()
            return []
        except _BROKEN as error:
            self._pull = None
            heed_cancellation()
            _log.debug("work queue away", error=type(error).__name__)
            raise QueueAway from error
        heed_cancellation()
        found: list[Delivery] = []
        for message in messages:
            try:
                found.append(Delivery(_decode(message.data), message))
            except msgspec.MsgspecError:
                await _quietly(message.term)  # nobody will ever understand it
        return found

    async def _bound(self, client: BrokerClient) -> JetStreamContext.PullSubscription:
        config = ConsumerConfig(
            ack_policy=AckPolicy.EXPLICIT, ack_wait=self._patience, max_deliver=_DELIVERIES, max_ack_pending=10_000
        )
        return await client.jetstream().pull_subscribe(
            self._subjects.hooks, durable=_DURABLE, stream=self._subjects.hooks_stream, config=config
        )


class QueueAway(Exception):
    """The broker, its stream or its consumer is away."""


async def _quietly(answer: Callable[[], Awaitable[object]]) -> None:
    try:
        await answer()
    except _BROKEN as error:
        _log.debug("a delivery was not answered", error=type(error).__name__)
    heed_cancellation()
