"""Which committed events the stream EVENTS holds: for the relay, which sends again what it lacks."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import ConsumerConfig, DeliverPolicy, Header

from infra.nats.cancellation import heed_cancellation
from infra.nats.connection import BrokerConnection, NotConnected
from infra.nats.subjects import Subjects

_log = structlog.get_logger(__name__)

_RETRY_SECONDS = 1.0
_LOOK_SECONDS = 0.5
_LOOKS_A_CHECK = 10
# Ids that were read but that nobody has asked for yet. When the oldest is dropped, its event may be sent a second time,
# which consumers must bear anyway.
_IDS = 200_000


class StoredIds:
    """Reads EVENTS by an ordered consumer, headers only. Each connection begins anew, because the broker behind it may
    have lost its streams."""

    def __init__(
        self, connection: BrokerConnection, since: Callable[[], float], heard: Callable[[], None] = lambda: None
    ) -> None:
        """`since`: seconds since 1970; what EVENTS got before it need not be read. `heard`: called at every message."""
        self._connection = connection
        self._subjects = Subjects(connection.options.namespace)
        self._since = since
        self._heard = heard
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._current = False
        self._made: float | None = None

    @property
    def current(self) -> bool:
        """Everything that EVENTS held a moment ago has been read: only then an id that is missing tells something."""
        return self._current and self._connection.is_connected

    @property
    def made(self) -> float | None:
        """When the broker made the EVENTS that is read now, in seconds since 1970 on its clock; None: not known yet.
        Another one than before has lost what the former one held."""
        return self._made

    def take(self, message_id: str) -> bool:
        """Whether EVENTS holds that message; it is forgotten here, since its event is settled now."""
        return self._ids.pop(message_id, self) is None

    async def run(self) -> None:
        """Until cancelled; belongs to the owner's TaskGroup."""
        while True:
            client = await self._connection.connected()
            try:
                await self._follow(client)
            except (NotConnected, NatsError, OSError, TimeoutError) as error:
                _log.info("EVENTS is not there yet", reason=type(error).__name__)
            self._current = False
            heed_cancellation()
            await asyncio.sleep(_RETRY_SECONDS)

    async def _follow(self, client: Client) -> None:
        self._ids.clear()
        self._made = await self._made_at(client)
        since = datetime.fromtimestamp(self._since(), UTC).isoformat()
        config = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_TIME, opt_start_time=since)  # type: ignore[arg-type]
        subscription = await client.jetstream().subscribe(
            self._subjects.all_events,
            stream=self._subjects.events_stream,
            config=config,
            ordered_consumer=True,
            headers_only=True,
            cb=self._on_message,
        )
        if (await subscription.consumer_info()).num_pending == 0:
            self._current = True
        looks = 0
        while client.is_connected:
            await asyncio.sleep(_LOOK_SECONDS)
            looks += 1
            # Somebody may have removed the stream of a broker that is well: nobody tells a consumer.
            if looks % _LOOKS_A_CHECK == 0 and await self._made_at(client) != self._made:
                return

    async def _made_at(self, client: Client) -> float | None:
        info = await client.jetstream().stream_info(self._subjects.events_stream)
        return None if info.created is None else info.created.timestamp()

    async def _on_message(self, message: Msg) -> None:
        message_id = (message.headers or {}).get(Header.MSG_ID.value)
        if message_id is not None:
            self._ids[message_id] = None
            while len(self._ids) > _IDS:
                self._ids.popitem(last=False)
        if message.metadata.num_pending == 0:
            self._current = True
        self._heard()


@contextlib.asynccontextmanager
async def open_stored_ids(
    connection: BrokerConnection, since: Callable[[], float], heard: Callable[[], None] = lambda: None
) -> AsyncIterator[StoredIds]:
    """Read as long as the block."""
    stored = StoredIds(connection, since, heard)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(stored.run(), name="ids in EVENTS")
        try:
            yield stored
        finally:
            running.cancel()
