"""Listening on the broker: a gateway to sessions, a worker to hints and to the turns it runs."""

from collections.abc import Callable
from typing import Protocol

from domain.ids import SessionId, TurnId
from infra.nats.client import Message
from infra.nats.connection import BrokerConnection
from infra.nats.subjects import Subjects


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

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        self._subjects = Subjects(connection.options.namespace)

    async def subscribe(self, session_id: SessionId, listener: SessionListener) -> Subscription:
        """Everything about one session in one subscription, so that one publisher's events and frames keep their
        order. Raises InvalidToken."""
        subject = self._subjects.session(session_id)
        return await self._connection.subscribe(subject, _sorted(subject.removesuffix(">"), listener), listener.on_gap)

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
