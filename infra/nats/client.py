"""nats-py's client, for one connection only. What we use of its inside is here and nowhere else (and pinned by the
lock)."""

import asyncio
from asyncio import Future
from collections.abc import Callable
from typing import NamedTuple

from nats.aio.client import PING_PROTO, Client
from nats.protocol.command import sub_cmd, unsub_cmd

from infra.nats.cancellation import heed_cancellation


class Message(NamedTuple):
    """As it came: `headers` is the unparsed block."""

    subject: bytes
    data: bytes
    headers: bytes | None


class BrokerClient(Client):
    """A client that ends at once when its connection is lost, that can tell what the broker has processed, and that
    hands messages on without a queue, a task and parsed headers for each subscription."""

    def __init__(self) -> None:
        super().__init__()
        self._handlers: dict[int, Callable[[Message], None]] = {}

    async def hear(self, subject: str, handler: Callable[[Message], None]) -> int:
        """Subscribes; `handler` must not wait. Nothing is buffered here: who cannot follow stops reading, and the
        broker ends the connection when too much waits at its side. Returns the number for `unhear`. Raises nats
        errors."""
        self._sid += 1
        sid = self._sid
        self._handlers[sid] = handler
        await self._send_command(sub_cmd(subject, "", sid))
        await self._flush_pending()
        return sid

    async def unhear(self, sid: int) -> None:
        """Ends it. Raises nats errors."""
        if self._handlers.pop(sid, None) is not None and self.is_connected:
            await self._send_command(unsub_cmd(sid, 0))
            await self._flush_pending()

    @property
    def heard(self) -> int:
        """How many subscriptions there are."""
        return len(self._handlers)

    async def ping(self) -> "Future[bool]":
        """Sends a PING behind all that was sent before. The result is done with its answer; it must not be cancelled.

        Not nats-py's `flush`, for two reasons: its PING goes out ahead of the SUB and PUB lines that still wait for
        the flusher, so that the answer proves nothing about them; and when one who waits in it is cancelled, or gives
        up, the late PONG ends the read loop. Raises nats errors.
        """
        pong: Future[bool] = asyncio.get_running_loop().create_future()
        self._pongs.append(pong)
        await self._send_command(PING_PROTO)
        await self._flush_pending()
        heed_cancellation()
        return pong

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        handler = self._handlers.get(sid)
        if handler is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        try:
            handler(Message(subject, data, headers))
        except Exception as error:  # noqa: BLE001 - a listener's fault must not end the read loop
            await self._error_cb(error)

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        # The original writes what still waits to a connection that may be dead or stuck, and then fails, or waits for
        # ever, before it has ended its tasks and told anybody. Whoever closes orderly has flushed before.
        self._pending = []
        self._pending_data_size = 0
        self._handlers.clear()
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()
        await super()._close(status, do_cbs)


async def answered(pong: "Future[bool]", closed: "Future[None]", seconds: float) -> bool:
    """Whether the answer came before the time was over or the client was closed. Cancelling it is safe."""
    await asyncio.wait((pong, closed), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    return pong.done()
