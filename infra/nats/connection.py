"""The connection to the broker: it may be away at any time, also at the start, and nobody has to care.

nats-py's own reconnect is not used: it has no jitter, does not cover the first connection, and ends for good on any
error the server names. Here a client lives for one connection; a new one follows, and every subscription is bound to it
anew.
"""

import asyncio
import contextlib
import random
from asyncio import Future
from collections import deque
from collections.abc import AsyncIterator, Callable
from enum import Enum

import structlog
from nats.errors import Error as NatsError

from infra.nats.binding import Binding
from infra.nats.cancellation import heed_cancellation
from infra.nats.client import BrokerClient, Message, answered
from infra.nats.options import BrokerOptions

_log = structlog.get_logger(__name__)

_ANSWER_SECONDS = 2
# A broker that is gone without a word is noticed within 15 s; events reach viewers by heads and replay meanwhile.
_PING_SECONDS = 5
_PINGS_UNANSWERED = 2
# A client that fails in its own shutdown calls nobody back; its state tells all the same.
_LOOK_SECONDS = 0.25
_CLOSE_SECONDS = 1.0


class ConnectionState(Enum):
    """What a listener is told."""

    CONNECTED = "connected"
    """For the first time."""

    DISCONNECTED = "disconnected"
    RECONNECTED = "reconnected"
    """All subscriptions are bound again; what was published meanwhile was missed."""


class NotConnected(Exception):
    """The broker is away."""


class BrokerConnection:
    """One process's connection. `run` belongs to the owner's TaskGroup and keeps it up until cancelled.

    Guarantees: `subscribe` never fails because the broker is away. A subscription that was bound, or bound again,
    after its `subscribe` returned is told by its gap listener, once it is live: messages were lost by then. (Nothing
    is buffered here; a process that cannot follow loses its connection, and so learns of it.)
    """

    def __init__(self, options: BrokerOptions) -> None:
        self.options = options
        self.max_payload = 1 << 20
        """Of one message with its headers, in bytes: what the last server said, until then a server's default."""

        self._client: BrokerClient | None = None
        self._closed: Future[None] = asyncio.get_running_loop().create_future()
        self._bindings: dict[Binding, None] = {}
        self._ending: deque[tuple[BrokerClient, int]] = deque()
        self._endings = asyncio.Event()
        self._listeners: list[Callable[[ConnectionState], None]] = []
        self._up = asyncio.Event()
        self._was_up = False
        self._told_away = False
        self._shown = [url.rpartition("@")[2] for url in options.servers]  # never credentials

    @property
    def is_connected(self) -> bool:
        return self._up.is_set() and self._client is not None and self._client.is_connected

    @property
    def client(self) -> BrokerClient:
        """The client of this very connection: not to be kept. Raises NotConnected."""
        if self._client is None or not self.is_connected:
            raise NotConnected
        return self._client

    async def connected(self) -> BrokerClient:
        """Waits until the broker is there."""
        while not self.is_connected:
            await self._up.wait()
            if not self.is_connected:
                await asyncio.sleep(_LOOK_SECONDS / 5)  # just lost: `run` clears the event when it looks
        return self.client

    def listen(self, listener: Callable[[ConnectionState], None]) -> None:
        """Calls `listener` on every change of state, for as long as the connection lives; it must not wait or raise."""
        self._listeners.append(listener)

    async def subscribe(
        self, subject: str, on_message: Callable[[Message], None], on_gap: Callable[[], None] | None = None
    ) -> Binding:
        """A core subscription; messages come to `on_message` in order, each call without being awaited. Returns once
        the broker confirmed that it delivers from now on, or at once when it is away."""
        binding = Binding(subject, on_message, on_gap or _ignore, forget=self._forget)
        self._bindings[binding] = None
        try:
            client = self.client
            await self._bind(binding, client)
            pong = await client.ping()
            if not await answered(pong, self._closed, _ANSWER_SECONDS):
                binding.stale = True
                pong.add_done_callback(lambda _: binding.settle())  # a broker that was only slow
        except (NotConnected, NatsError, OSError):
            binding.stale = True  # `run` binds it to the next client
        except BaseException:
            binding.close()
            raise
        return binding

    async def flush(self) -> None:
        """Returns once the broker has processed what was sent before. Raises NotConnected, nats errors."""
        if not await answered(await self.client.ping(), self._closed, _ANSWER_SECONDS):
            raise NotConnected

    async def run(self) -> None:
        """Keeps the connection up until cancelled, which closes it."""
        async with asyncio.TaskGroup() as tasks:
            ender = tasks.create_task(self._end_subscriptions(), name="broker endings")
            try:
                await self._keep_up()
            finally:
                self._up.clear()
                # In a task of its own: this one is being cancelled, which calls of the client would take for theirs.
                closing = tasks.create_task(self._close(), name="broker closing")
                await asyncio.wait((closing,), timeout=_CLOSE_SECONDS)
                closing.cancel()
                ender.cancel()

    async def _keep_up(self) -> None:
        failures = 0
        while True:
            if await self._opened():
                failures = 0
                await self._loss()
            else:
                failures += 1
            bound = min(self.options.pause_max, self.options.pause_min * 2 ** min(failures, 16))
            await asyncio.sleep(random.uniform(bound / 2, bound))
            heed_cancellation()

    async def _opened(self) -> bool:
        try:
            return await self._open()
        except Exception:  # noqa: BLE001 - root of a task that must not end: the next try has a new client
            _log.exception("broker connection failed")
            return False

    async def _open(self) -> bool:
        client, closed = self._client, self._closed = BrokerClient(), asyncio.get_running_loop().create_future()

        async def on_closed() -> None:
            if not closed.done():
                closed.set_result(None)

        try:
            await client.connect(
                servers=[random.choice(self.options.servers)],
                name=self.options.name,
                user=self.options.user,
                password=self.options.password,
                inbox_prefix=self.options.inbox_prefix,
                allow_reconnect=False,
                max_reconnect_attempts=1,  # not 0, which nats-py takes for "without end"
                reconnect_time_wait=0,
                connect_timeout=_ANSWER_SECONDS,
                ping_interval=_PING_SECONDS,
                max_outstanding_pings=_PINGS_UNANSWERED,
                error_cb=self._on_error,
                closed_cb=on_closed,
            )
            self.max_payload = client.max_payload
            # Nothing is awaited between the last look and the event, so no new binding is overlooked.
            while missing := [binding for binding in self._bindings if binding.client is not client]:
                for binding in missing:
                    binding.stale = True
                    await self._bind(binding, client)
                if not await answered(await client.ping(), closed, _ANSWER_SECONDS):
                    raise TimeoutError
        except (NatsError, OSError, TimeoutError) as error:
            self._say_away(error)
            await client.close()
            return False
        heed_cancellation()
        self._up.set()
        self._say_back()
        for binding in list(self._bindings):
            binding.settle()
        self._tell(ConnectionState.RECONNECTED if self._was_up else ConnectionState.CONNECTED)
        self._was_up = True
        return True

    async def _bind(self, binding: Binding, client: BrokerClient) -> None:
        binding.client = client
        sid = await client.hear(binding.subject, binding.deliver)
        if binding.client is client:  # else `run` was faster and bound it to the next client
            binding.sid = sid
            if binding.closed:
                self._forget(binding)

    async def _loss(self) -> None:
        client = self._client
        assert client is not None
        while not client.is_closed:
            await asyncio.wait((self._closed,), timeout=_LOOK_SECONDS)
        if not self._closed.done():
            self._closed.set_result(None)
        self._up.clear()
        self._say_away(client.last_error)
        self._tell(ConnectionState.DISCONNECTED)

    def _forget(self, binding: Binding) -> None:
        self._bindings.pop(binding, None)
        if binding.client is not None and binding.client is self._client and binding.sid:
            self._ending.append((binding.client, binding.sid))
            self._endings.set()

    async def _end_subscriptions(self) -> None:
        """Tells the broker of closed subscriptions: closing must not wait, and this is the task that may."""
        while True:
            await self._endings.wait()
            self._endings.clear()
            while self._ending:
                client, sid = self._ending.popleft()
                with contextlib.suppress(NatsError, OSError):
                    await client.unhear(sid)
                heed_cancellation()

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is None or client.is_closed:
            return
        if client.is_connected:
            with contextlib.suppress(NatsError, OSError):
                await answered(await client.ping(), self._closed, _CLOSE_SECONDS / 2)
        await client.close()

    def _tell(self, state: ConnectionState) -> None:
        for listener in self._listeners:
            listener(state)

    async def _on_error(self, error: Exception) -> None:
        if self._up.is_set():
            _log.warning("broker error", error=_text(error))

    def _say_away(self, error: Exception | None) -> None:
        if not self._told_away:
            self._told_away = True
            _log.warning("broker away", servers=self._shown, reason=_text(error))

    def _say_back(self) -> None:
        if self._told_away:
            self._told_away = False
            _log.info("broker back", servers=self._shown)


@contextlib.asynccontextmanager
async def open_broker(options: BrokerOptions) -> AsyncIterator[BrokerConnection]:
    """A connection that lives as long as the block; entered at once, also while the broker is away."""
    connection = BrokerConnection(options)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(connection.run(), name="broker connection")
        try:
            yield connection
        finally:
            running.cancel()


def _text(error: BaseException | None) -> str:
    """What the broker's client says names subjects at most; of other errors only the type is sure to hold no
    payload."""
    return str(error) if isinstance(error, NatsError) else type(error).__name__


def _ignore() -> None: ...
