"""Tells others that something is committed, and shows what is not: `domain.ports.Notifier` over NATS."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from collections.abc import Sequence as Many

import msgspec
import structlog
from nats.errors import Error as NatsError
from nats.js.api import Header

from domain.ids import SessionId, TurnId
from domain.ports import Publication
from infra.nats.connection import BrokerConnection, NotConnected
from infra.nats.headers import TRACEPARENT
from infra.nats.outbox import Outbox
from infra.nats.subjects import InvalidToken, Subjects
from infra.telemetry.traces import Span, Traces

_log = structlog.get_logger(__name__)

# Headers count too.
_HEADROOM = 1024
_LAST_SECONDS = 1.0

_SNAPSHOT = {Header.ROLLUP.value: "sub"}
# The shortest time a server takes: the tombstone goes by itself.
_TOMBSTONE = {Header.ROLLUP.value: "sub", "Nats-TTL": "1s"}


class NatsNotifier:
    """Nothing here waits or raises. Messages go out in the order of the calls, so that the events and temporary
    frames of one publisher keep theirs. They may be lost or doubled; never is anything published that was not handed
    in."""

    def __init__(self, connection: BrokerConnection, traces: Traces | None = None) -> None:
        """`traces`: an event whose command came with a trace is a span, until the broker's client has it."""
        self._connection = connection
        self._traces = traces
        self._subjects = Subjects(connection.options.namespace)
        self.outbox = Outbox(connection)
        """For metrics, and for tests that wait."""

    async def run(self) -> None:
        """Publishes until cancelled; belongs to the owner's TaskGroup."""
        await self.outbox.run()

    def publish_events(self, publications: Many[Publication]) -> None:
        """The stream EVENTS drops a repeat of the same event by its message id. An event that is too large for the
        broker goes out as its id without a payload: that tells viewers to read again, and the relay that it was
        told."""
        for publication in publications:
            envelope = publication.envelope if self._fits(publication.envelope) else b""
            headers = {Header.MSG_ID.value: f"{publication.session_id}:{publication.sequence}"}
            span = None if self._traces is None else _begun(self._traces, publication)
            if span is not None:
                headers[TRACEPARENT] = span.traceparent
            self._put(envelope, headers, self._subjects.event, publication.session_id, span=span)

    def publish_live(self, session_id: SessionId, item_id: str, frame: bytes) -> None:
        """A frame that is too large is left out: its item's readers see the hole."""
        if self._fits(frame):
            self._put(frame, None, self._subjects.live, session_id, item_id)

    def publish_snapshot(self, session_id: SessionId, item_id: str, frame: bytes) -> None:
        """Like publish_live; in the stream LIVE it replaces all earlier frames of the item."""
        if self._fits(frame):
            self._put(frame, _SNAPSHOT, self._subjects.live, session_id, item_id)

    def clear_live(self, session_id: SessionId, item_id: str) -> None:
        """Removes an item's frames from LIVE, in order with them. Not by the broker's purge, which overtakes frames
        published before it: an empty roll-up that expires by itself."""
        self._put(b"", _TOMBSTONE, self._subjects.live, session_id, item_id)

    def wake(self, pool: str) -> None:
        self._put(b"", None, self._subjects.wake, pool)

    def signal(self, turn_id: TurnId, message: bytes) -> None:
        self._put(message, None, self._subjects.signal, turn_id)

    def control(self, session_id: SessionId, message: bytes) -> None:
        self._put(message, None, self._subjects.control, session_id)

    def _fits(self, payload: bytes) -> bool:
        return len(payload) <= self._connection.max_payload - _HEADROOM

    def _put(
        self,
        payload: bytes,
        headers: dict[str, str] | None,
        subject: Callable[..., str],
        *tokens: str,
        span: Span | None = None,
    ) -> None:
        try:
            name = subject(*tokens)
        except InvalidToken as error:
            self.outbox.lost += 1
            _log.error("notification without a subject", what=error.what)
        else:
            self.outbox.put(name, payload, headers, span)


class _Metadata(msgspec.Struct, frozen=True):
    trace: str | None = None


_decode_metadata = msgspec.json.Decoder(_Metadata).decode


def _begun(traces: Traces, publication: Publication) -> Span | None:
    trace = _decode_metadata(publication.metadata).trace
    if trace is None:
        return None
    return traces.start("publish", trace, session_id=publication.session_id, sequence=publication.sequence)


@contextlib.asynccontextmanager
async def open_notifier(connection: BrokerConnection, traces: Traces | None = None) -> AsyncIterator[NatsNotifier]:
    """A notifier that publishes as long as the block; at its end what waits goes out, if the broker takes it in a
    moment."""
    notifier = NatsNotifier(connection, traces)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(notifier.run(), name="broker outbox")
        try:
            yield notifier
        finally:
            # In a task of its own: this one may be in cancellation, which calls of the client would take for theirs.
            last = tasks.create_task(_hand_over(notifier), name="broker outbox's last")
            await asyncio.wait((last,), timeout=_LAST_SECONDS if connection.is_connected else 0)
            last.cancel()
            running.cancel()


async def _hand_over(notifier: NatsNotifier) -> None:
    with contextlib.suppress(NotConnected, NatsError, OSError):
        await notifier.outbox.emptied()
