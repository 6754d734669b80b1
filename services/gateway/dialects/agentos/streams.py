"""A run as a server-sent stream in AgentOS's form."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import Any

import msgspec
from litestar import Litestar, Request
from litestar.response import Response
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

from domain.errors import SessionNotFound, Unavailable
from domain.events.naming import is_step
from services.gateway.deps import GatewayDeps
from services.gateway.dialects.agentos.reader import Event, RunReader
from services.gateway.dialects.agentos.watch import Watch, watching
from services.gateway.sse.frames import COMMENT
from services.gateway.sse.response import STREAM_HEADERS

_encode = msgspec.json.Encoder().encode

Guard = Callable[[Watch], AbstractContextManager[None]]
"""Opened for as long as the stream is there."""


def block(event: Event) -> bytes:
    """One event. The `id:` line is what a browser's EventSource sends back when it reconnects."""
    name = event["event"]
    if not is_step(name):
        # A runtime's word, of a release that did not refuse it.
        name = name.encode("unicode_escape").decode()
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (event["event_index"], name.encode(), _encode(event))


def meta(name: str, data: dict[str, Any]) -> bytes:
    """A frame about the stream itself, in the spelling of the original."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), json.dumps({"event": name, **data}).encode())


class RunStream:
    """What one client gets of a run: events above `after`, and what frames them."""

    def __init__(
        self,
        deps: GatewayDeps,
        reader: RunReader,
        session_id: str,
        loaded: list[Event],
        *,
        after: int = -1,
        guard: Guard | None = None,
        content_only: bool = False,
        opening: Iterable[bytes] = (),
        behind: bytes = b"",
        last: Callable[[], bytes] = bytes,
    ) -> None:
        """`loaded` are the events that `reader` has given already. `opening` comes before them and `behind`
        after them; `last` makes what comes behind the run's last event."""
        self._deps = deps
        self._reader = reader
        self._session_id = session_id
        self._loaded = loaded
        self._after = after
        self._guard = guard
        self._content_only = content_only
        self._opening = opening
        self._behind = behind
        self._last = last

    def response(self) -> Response[None]:
        return _StreamResponse(self)

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body, in whole blocks; a comment where nothing comes for a while."""
        first = b"".join(self._opening) + self._shown(self._loaded) + self._behind
        yield first or COMMENT
        reader = self._reader
        if not reader.run.ended():
            hub = self._deps.hub
            try:
                async with watching(hub, self._session_id, reader.cursor) as watch:
                    with self._guarded(watch):
                        async with aclosing(reader.follow(watch, hub.limits.comment_seconds)) as events:
                            async for made in events:
                                chunk = self._shown(made)
                                if chunk or not made:
                                    yield chunk or COMMENT
            except (Unavailable, SessionNotFound):
                pass
        if not reader.run.ended():
            yield meta("error", {"error": f"The stream of run {reader.run.run_id} was cut; the run goes on: resume it"})
        elif end := self._last():
            yield end

    def _shown(self, events: list[Event]) -> bytes:
        return b"".join(
            block(event)
            for event in events
            if event["event_index"] > self._after and (not self._content_only or event["event"].endswith("RunContent"))
        )

    def _guarded(self, watch: Watch) -> AbstractContextManager[None]:
        return nullcontext() if self._guard is None else self._guard(watch)


class _StreamResponse(Response[None]):
    def __init__(self, stream: RunStream) -> None:
        super().__init__(None, media_type="text/event-stream")
        self._stream = stream

    def to_asgi_response(self, app: Litestar | None, request: Request[Any, Any, Any], **_: Any) -> ASGIResponse:
        return _Streaming(self._stream)


class _Streaming(ASGIResponse):
    __slots__ = ("_stream",)

    def __init__(self, stream: RunStream) -> None:
        super().__init__(media_type="text/event-stream")
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(STREAM_HEADERS)})
        writing = asyncio.ensure_future(self._write(send))
        leaving = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait((writing, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (writing, leaving):
                task.cancel()
            await asyncio.wait((writing, leaving))
        if not writing.cancelled():
            writing.result()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, send: Send) -> None:
        async with aclosing(self._stream.chunks()) as chunks:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
