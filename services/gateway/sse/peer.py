"""The connection under a stream: uvicorn's protocol, told to let the stream write to the transport itself (ADR 0002).

One shared chunk for all viewers and no task switch a write: a fifth of the CPU of `send()` per viewer. What this
relies on in uvicorn (`HttpToolsProtocol.flow`, `RequestResponseCycle.disconnected` and `message_event`) is held by a
test."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from services.gateway.sse.ports import chunk_of
from services.protocol import LimitedProtocol

_EXTENSION = "turnlog.peer"


class StreamProtocol(LimitedProtocol):
    """Our HTTP/1.1 protocol; a request's scope carries what `peer_of` makes a peer from."""

    on_lost: Callable[[], None] | None = None

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        # The cycle is taken here: with pipelining `self.cycle` is later another request's. Its task starts in a later
        # loop step.
        if self.cycle is not None:
            self.scope["extensions"] = {_EXTENSION: {"protocol": self, "cycle": self.cycle}}

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()
            self.on_lost = None


class TransportPeer:
    """Implements `ports.Peer`. The response head must have been sent without a length, so that the body is
    chunk-coded."""

    __slots__ = ("_cycle", "_flow", "_linger", "_protocol", "_transport")

    def __init__(self, protocol: StreamProtocol, cycle: RequestResponseCycle, linger_seconds: float) -> None:
        self._protocol = protocol
        self._cycle = cycle
        self._flow = protocol.flow
        self._transport = protocol.transport
        self._linger = linger_seconds

    @property
    def gone(self) -> bool:
        return self._cycle.disconnected or self._transport.is_closing()

    @property
    def writable(self) -> bool:
        return not self._flow.write_paused

    def write(self, chunk: bytes) -> None:
        if not self.gone:
            self._transport.write(chunk)

    def write_body(self, body: bytes) -> None:
        if not self.gone:
            self._transport.writelines((b"%x\r\n" % len(body), body, b"\r\n"))

    async def drain(self) -> None:
        await self._flow.drain()

    def finish(self, last: bytes) -> None:
        if self.gone:
            return
        self._transport.write(chunk_of(last) + b"0\r\n\r\n")
        # uvicorn then takes the response for over: it logs nothing and closes nothing by itself.
        self._cycle.disconnected = True
        self._cycle.message_event.set()
        self._transport.close()
        self._flow.resume_writing()
        if self._transport.get_write_buffer_size():
            # A peer that never reads would hold its socket until the kernel gives up.
            asyncio.get_running_loop().call_later(self._linger, self._transport.abort)

    def watch(self, lost: Callable[[], None]) -> None:
        if self.gone:
            asyncio.get_running_loop().call_soon(lost)
        else:
            self._protocol.on_lost = lost


def peer_of(scope: Mapping[str, Any], linger_seconds: float) -> TransportPeer:
    """The connection of that request. Raises LookupError under any server but ours."""
    connection = scope["extensions"][_EXTENSION]
    return TransportPeer(connection["protocol"], connection["cycle"], linger_seconds)
