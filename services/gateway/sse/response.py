"""The HTTP side of a stream: a Litestar response whose ASGI side writes to the connection itself.

The status and the head are decided before anything is written, so refusals raised here still become problem+json.
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from litestar import Litestar, Request
from litestar.response import Response
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

from domain.errors import InternalFault, SessionNotFound, Unavailable
from services.gateway.sse import frames
from services.gateway.sse.attach import follow, opening, stand_of
from services.gateway.sse.hub import Hub
from services.gateway.sse.peer import peer_of
from services.gateway.sse.viewer import Viewer

Guard = Callable[[Viewer], AbstractContextManager[None]]
"""Opened for as long as the viewer is there."""

STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    # no-transform: a proxy that compresses would hold frames back.
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


def _nobody(_: Viewer) -> AbstractContextManager[None]:
    return nullcontext()


class EventStream(Response[None]):
    """What the route returns: the stream of one session after one cursor. `seconds`: how long the credential that
    opened it is still good, None for ever; the stream does not outlive it. `guard`: who may end a viewer meanwhile.
    `cookie`: a Set-Cookie header."""

    def __init__(
        self,
        hub: Hub,
        session_id: str,
        cursor: int,
        seconds: float | None = None,
        guard: Guard = _nobody,
        cookie: str | None = None,
    ) -> None:
        super().__init__(None, media_type="text/event-stream")
        self._hub = hub
        self._session_id = session_id
        self._cursor = cursor
        self._seconds = seconds
        self._guard = guard
        self._cookie = cookie

    def to_asgi_response(self, app: Litestar | None, request: Request[Any, Any, Any], **_: Any) -> ASGIResponse:
        return _Stream(self._hub, self._session_id, self._cursor, self._seconds, self._guard, self._cookie)


class NoStreamNow(Response[None]):
    """The answer of a process that can open no stream now: a 200 that says so, since a native EventSource gives up for
    good on any other status. `cookie`: a Set-Cookie header, where a ticket may have been spent already."""

    def __init__(self, hub: Hub, cookie: str | None = None) -> None:
        super().__init__(None, media_type="text/event-stream")
        self._hub = hub
        self._cookie = cookie

    def to_asgi_response(self, app: Litestar | None, request: Request[Any, Any, Any], **_: Any) -> ASGIResponse:
        return _Refusal(self._hub, self._cookie)


class _Refusal(ASGIResponse):
    __slots__ = ("_cookie", "_hub")

    def __init__(self, hub: Hub, cookie: str | None) -> None:
        super().__init__(media_type="text/event-stream")
        self._hub = hub
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _refuse(send, self._hub, self._cookie)


class _Stream(ASGIResponse):
    __slots__ = ("_cookie", "_cursor", "_guard", "_hub", "_seconds", "_session_id")

    def __init__(
        self, hub: Hub, session_id: str, cursor: int, seconds: float | None, guard: Guard, cookie: str | None
    ) -> None:
        super().__init__(media_type="text/event-stream")
        self._guard = guard
        self._cookie = cookie
        self._hub = hub
        self._session_id = session_id
        self._cursor = cursor
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hub = self._hub
        if _ends(hub) or hub.full:
            await _refuse(send, hub, self._cookie)
            return
        peer = peer_of(scope, hub.limits.linger_seconds)
        with hub.feed(self._session_id) as (feed, live):
            try:
                stand = await stand_of(hub, self._session_id, live)
            except (Unavailable, InternalFault):
                await _refuse(send, hub, self._cookie)
                return
            if peer.gone:
                # Hung up meanwhile, as many do in a storm: nothing is read for nobody.
                return
            # Whether it is full does not count any more: this stream has its place.
            if _ends(hub):
                await _refuse(send, hub, self._cookie)
                return
            feed.learn(stand.head)
            if stand.head.closed and self._cursor == stand.head.last_sequence:
                await _nothing_left(send)
                return
            await send({"type": "http.response.start", "status": 200, "headers": _headers(self._cookie)})
            first, cursor = opening(hub, self._session_id, self._cursor, stand)
            viewer = Viewer(peer, cursor, hub.limits.viewer_buffer_bytes)
            peer.write_body(first)
            hub.check(self._session_id, hub.limits.recheck_seconds)
            with hub.counted(viewer), _expiry(viewer, self._seconds), _life(hub, viewer), self._guard(viewer):
                try:
                    await follow(hub, feed, viewer)
                except SessionNotFound:
                    viewer.end(frames.closing("closed"))


@contextmanager
def _expiry(viewer: Viewer, seconds: float | None) -> Iterator[None]:
    if seconds is None:
        yield
        return
    timer = asyncio.get_running_loop().call_later(max(seconds, 0.0), viewer.end, frames.closing("expired"))
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _life(hub: Hub, viewer: Viewer) -> Iterator[None]:
    """No stream is for ever. Streams that were opened in one second do not end in one."""
    timer = asyncio.get_running_loop().call_later(
        hub.limits.stream_seconds * random.uniform(1.0, 1.2), hub.send_on, viewer
    )
    try:
        yield
    finally:
        timer.cancel()


def _ends(hub: Hub) -> bool:
    """Asked again after every wait: it may have begun meanwhile."""
    return hub.draining


def _headers(cookie: str | None) -> list[tuple[bytes, bytes]]:
    """A list of its own: middleware adds to it in place."""
    return [*STREAM_HEADERS, *([] if cookie is None else [(b"set-cookie", cookie.encode("latin-1"))])]


async def _refuse(send: Send, hub: Hub, cookie: str | None) -> None:
    """A whole answer without `id:`, so that the client keeps its cursor and comes back later. With the cookie of a
    ticket that was spent for nothing, since the client comes back with the same URL."""
    reason: frames.ClosingReason = "draining" if hub.draining else "overloaded"
    body = frames.closing(reason, frames.jittered(hub.limits.retry_overloaded_milliseconds))
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [*_headers(cookie), length]})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _nothing_left(send: Send) -> None:
    """204 makes an EventSource stop."""
    await send({"type": "http.response.start", "status": 204, "headers": [(b"cache-control", b"no-store")]})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
