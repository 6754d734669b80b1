"""nats-py's client, for one connection only. What we use of its inside is here and nowhere else (and pinned by the
lock)."""

import asyncio
from asyncio import Future

from nats.aio.client import PING_PROTO, Client

from infra.nats.cancellation import heed_cancellation


class BrokerClient(Client):
    """A client that ends at once when its connection is lost, and that can tell what the broker has processed."""

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        # The original writes what still waits to a connection that may be dead or stuck, and then fails, or waits for
        # ever, before it has ended its tasks and told anybody. Whoever closes orderly has flushed before.
        self._pending = []
        self._pending_data_size = 0
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()
        await super()._close(status, do_cbs)

    async def ping(self) -> "Future[bool]":
        """Sends a PING behind all that was sent before. The result is done with its answer; it must not be cancelled.

        Not nats-py's `flush`, for two reasons: its PING goes out ahead of the SUB and PUB lines that still wait for the
        flusher, so that the answer proves nothing about them; and when one who waits in it is cancelled, or gives up,
        the late PONG ends the read loop. Raises nats errors.
        """
        pong: Future[bool] = asyncio.get_running_loop().create_future()
        self._pongs.append(pong)
        await self._send_command(PING_PROTO)
        await self._flush_pending()
        heed_cancellation()
        return pong


async def answered(pong: "Future[bool]", closed: "Future[None]", seconds: float) -> bool:
    """Whether the answer came before the time was over or the client was closed. Cancelling it is safe."""
    await asyncio.wait((pong, closed), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    return pong.done()
