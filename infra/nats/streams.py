"""The JetStream streams, made by whoever publishes and made again when the broker has lost them.

EVENTS is for outside consumers and the relay, LIVE for viewers that join in mid-item, HOOKS delivers background
jobs. None is the truth: all may vanish at any time. EVENTS and LIVE share the session's subjects without an overlap.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import structlog
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import APIError

from infra.nats.cancellation import heed_cancellation
from infra.nats.connection import BrokerConnection, ConnectionState, NotConnected
from infra.nats.subjects import Subjects

_log = structlog.get_logger(__name__)

_MINUTE = 60.0
_LOOK_SECONDS = 30.0
_RETRY_SECONDS = 1.0
_OTHER_CONFIGURATION = 10058


def stream_configurations(subjects: Subjects, replicas: int = 1) -> list[StreamConfig]:
    """Every stream is bounded in age and bytes, and drops its oldest."""
    events = StreamConfig(
        name=subjects.events_stream,
        description="committed events of all sessions; the log in the database is the truth",
        subjects=[subjects.all_events],
        max_age=10 * _MINUTE,
        max_bytes=256 << 20,
        duplicate_window=2 * _MINUTE,
        allow_direct=True,
    )
    live = StreamConfig(
        name=subjects.live_stream,
        description="temporary frames of open items",
        subjects=[subjects.all_live],
        storage=StorageType.MEMORY,
        max_age=10 * _MINUTE,
        max_bytes=64 << 20,
        allow_rollup_hdrs=True,
        allow_direct=True,
        allow_msg_ttl=True,
    )
    hooks = StreamConfig(
        name=subjects.hooks_stream,
        description="background hook jobs; the log decides what is to be done",
        subjects=[subjects.hooks],
        retention=RetentionPolicy.WORK_QUEUE,
        max_age=24 * 60 * _MINUTE,
        max_bytes=64 << 20,
        duplicate_window=2 * _MINUTE,
    )
    return [replace(stream, discard=DiscardPolicy.OLD, num_replicas=replicas) for stream in (events, live, hooks)]


class Streams:
    """Keeps the streams of an installation in being.

    `run` makes them after every connect and looks again now and then. A stream that exists is changed to our
    configuration once a process start, not at every look: two versions of the code at once would change it to and fro.
    """

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        self._configurations = stream_configurations(
            Subjects(connection.options.namespace), connection.options.replicas
        )
        self._told: set[str] = set()
        self._updated: set[str] = set()
        self._look = asyncio.Event()
        self._ready = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []
        connection.listen(self._on_state)

    @property
    def are_ready(self) -> bool:
        """Since the last connect."""
        return self._ready.is_set()

    async def ready(self) -> None:
        """Waits until they are."""
        await self._ready.wait()

    def listen(self, listener: Callable[[], None]) -> None:
        """Calls it each time the streams are there after a connect: what was published before went to viewers, but may
        be in no stream. It must not wait or raise."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Until cancelled; belongs to the owner's TaskGroup."""
        while True:
            await self._connection.connected()
            self._look.clear()
            ensured = await self._ensure_all()
            if ensured and not self._look.is_set() and not self._ready.is_set():
                self._ready.set()
                for listener in self._listeners:
                    listener()
            heed_cancellation()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS if ensured else _RETRY_SECONDS):
                    await self._look.wait()

    async def ensure(self, configuration: StreamConfig) -> None:
        """Makes one stream, or changes it the first time. Raises NotConnected and nats errors. What the broker cannot
        change in place (the kind of storage) stays as it is, with one warning."""
        name = str(configuration.name)
        streams: JetStreamContext = self._connection.client.jetstream()
        try:
            await streams.add_stream(configuration)
        except APIError as error:
            if error.err_code != _OTHER_CONFIGURATION:
                raise
            if name not in self._updated:
                await self._update(streams, name, configuration)
        self._updated.add(name)

    async def _update(self, streams: JetStreamContext, name: str, configuration: StreamConfig) -> None:
        try:
            await streams.update_stream(configuration)
            _log.info("stream changed", stream=name)
        except APIError as error:
            _log.warning("stream keeps another configuration", stream=name, reason=error.description)

    async def _ensure_all(self) -> bool:
        ensured = True
        for configuration in self._configurations:
            name = str(configuration.name)
            try:
                await self.ensure(configuration)
                self._told.discard(name)
            except NotConnected:
                return False
            except (NatsError, OSError, TimeoutError) as error:
                ensured = False
                if name not in self._told:
                    self._told.add(name)
                    _log.warning("stream not there", stream=name, reason=str(error))
        return ensured

    def _on_state(self, state: ConnectionState) -> None:
        if state is ConnectionState.DISCONNECTED:
            self._ready.clear()
        else:
            self._look.set()


@contextlib.asynccontextmanager
async def open_streams(connection: BrokerConnection) -> AsyncIterator[Streams]:
    """Streams that are kept as long as the block; entered at once."""
    streams = Streams(connection)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(streams.run(), name="broker streams")
        try:
            yield streams
        finally:
            running.cancel()
