"""Waiting until the broker has processed what was sent. Not by nats-py's `flush`, for two reasons: its PING goes out
ahead of the SUB and PUB lines that still wait for its flusher, so that the answer proves nothing about them; and when
one who waits in it is cancelled, or gives up, the late PONG ends the client's read loop."""

import asyncio
from asyncio import Future

from nats.aio.client import PING_PROTO, Client

from infra.nats.cancellation import heed_cancellation


async def ping(client: Client) -> "Future[bool]":
    """Sends a PING behind all that was sent before. The result is done with its answer; it must not be cancelled.
    Raises nats errors."""
    pong: Future[bool] = asyncio.get_running_loop().create_future()
    client._pongs.append(pong)
    await client._send_command(PING_PROTO)
    await client._flush_pending()
    heed_cancellation()
    return pong


async def answered(pong: "Future[bool]", closed: "Future[None]", seconds: float) -> bool:
    """Whether the answer came before the time was over or the client was closed. Cancelling it is safe."""
    await asyncio.wait((pong, closed), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    return pong.done()
