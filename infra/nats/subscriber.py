"""Listening on the broker: a gateway to sessions, a worker to hints and to the turns it runs."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from domain.ids import SessionId, TurnId
from infra.nats.client import Message
from infra.nats.connection import BrokerConnection
from infra.nats.headers import TRACEPARENT, header_fields
from infra.nats.subjects import Subjects
from infra.telemetry.traces import Traces


class SessionListener(Protocol):
    """Receives what is published about one session, in the order of arrival, each call without being awaited.

    Temporary frames include the roll-ups (`item.snapshot`). `on_gap`: something may have been missed by a reconnect, an
    overflow, or an event too large for the broker; whoever reads again after the call has missed nothing.
    """

    def on_event(self, envelope: bytes) -> None: ...
    def on_live(self, frame: bytes) -> None: ...
    def on_control(self, message: bytes) -> None: ...
    def on_gap(self) -> None: ...


class Subscription(Protocol):
    """An open subscription."""

    def close(self) -> None:
        """No call of the listener follows. Does not wait and does not raise."""
        ...


class NatsSubscriber:
    """Core subscriptions, never a JetStream consumer: the log heals what they miss.

    Each method returns once the broker confirmed that it delivers from now on; while the broker is away it returns too,
    and the gap is told when it is back.
    """

    def __init__(self, connection: BrokerConnection, traces: Traces | None = None) -> None:
        """`traces`: an event that was published in a trace is a span of it, until what it leads to at once is done."""
        self._connection = connection
        self._traces = traces
        self._subjects = Subjects(connection.options.namespace)

    async def subscribe(self, session_id: SessionId, listener: SessionListener) -> Subscription:
        """Everything about one session in one subscription, so that one publisher's events and frames keep their
        order. Raises InvalidToken."""
        subject = self._subjects.session(session_id)
        sort = _sorted(subject.removesuffix(">"), listener)
        if self._traces is not None:
            sort = _traced(sort, self._traces, session_id)
        return await self._connection.subscribe(subject, sort, listener.on_gap)

    async def subscribe_wake(self, pool: str, on_wake: Callable[[], None]) -> Subscription:
        """Hints that there may be work; a gap is one too. Raises InvalidToken."""
        return await self._connection.subscribe(self._subjects.wake(pool), lambda _: on_wake(), on_wake)

    async def subscribe_signals(
        self, turn_id: TurnId, on_signal: Callable[[bytes], None], on_gap: Callable[[], None]
    ) -> Subscription:
        """Hints for the one who runs the turn. After a gap the turn's intents and answers are to be read again. Raises
        InvalidToken."""
        return await self._connection.subscribe(
            self._subjects.signal(turn_id), lambda message: on_signal(message.data), on_gap
        )


def _sorted(prefix: str, listener: SessionListener) -> Callable[[Message], None]:
    start = len(prefix)

    def on_message(message: Message) -> None:
        kind, data = message.subject[start:], message.data
        if kind == b"event":
            if data:
                listener.on_event(data)
            else:
                listener.on_gap()  # committed, but too large for the broker
        elif kind.startswith(b"live."):
            if data:  # an empty one only clears the stream
                listener.on_live(data)
        elif kind == b"control":
            listener.on_control(data)
        # else a later version's

    return on_message


def _traced(sort: Callable[[Message], None], traces: Traces, session_id: SessionId) -> Callable[[Message], None]:
    soon = asyncio.get_running_loop().call_soon

    def on_message(message: Message) -> None:
        parent = header_fields(message.headers)[1].get(TRACEPARENT) if message.headers else None
        if parent is None:
            sort(message)
            return
        span = traces.start("send", parent, session_id=session_id)
        try:
            sort(message)
        finally:
            # Viewers are given what a loop step brought at its end: in the calls that were asked for before this one.
            soon(span.end)

    return on_message
