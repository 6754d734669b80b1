"""uvicorn's HTTP/1.1 protocol with an end to what one connection may send before anybody has looked at it.

uvicorn bounds neither the size of a request's head nor the time for it or for the body: a peer that sends a byte a
minute holds a connection, and a task, for ever. A proxy in front has such bounds of its own; a gateway without one
needs these.
"""

from asyncio import TimerHandle
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class HeadRefused(Exception):
    """Raised through the parser, which stops there."""


class LimitedProtocol(HttpToolsProtocol):
    """What is over a bound is answered and the connection closed. Bodies are bounded in size by the app; here only a
    body that does not come is given up, and only while we are ready to read it."""

    url_bytes = 16 * 1024
    head_bytes = 64 * 1024
    head_lines = 200
    head_seconds = 15.0
    """From a request's first byte to its last header; for the first request from the connection's beginning."""

    body_seconds = 20.0
    body_bytes = 8 * 1024
    """A body that is not over brings at least so much in that time."""

    linger_seconds = 1.0
    """What a refused peer still sends is read and thrown away for so long."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._refusal: HTTPStatus | None = None
        self._ended = False
        self._head_size = 0
        self._unparsed = 0
        self._in_body = False
        self._came = 0
        self._timer: TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._timer = self.loop.call_later(self.head_seconds, self._slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        self._came += len(data)
        super().data_received(data)
        if self._ended or self.transport.is_closing():
            return
        if self._head_size:
            # The parser keeps a line that does not end, and tells nobody.
            self._unparsed += len(data)
            if self._unparsed > 2 * self.head_bytes:
                self._close_with(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                return
        # Most requests come as one piece and need no timer.
        if self._timer is None:
            if self._in_body:
                self._came = 0
                self._timer = self.loop.call_later(self.body_seconds, self._look)
            elif self._head_size:
                self._timer = self.loop.call_later(self.head_seconds, self._slow)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_size, self._unparsed = 1, 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self.url_bytes:
            self._refuse(HTTPStatus.REQUEST_URI_TOO_LONG)

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._head_size += len(name) + len(value) + 4
        if self._head_size > self.head_bytes or len(self.headers) > self.head_lines:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_headers_complete(self) -> None:
        self._head_size = 0
        self._in_body = True
        self._disarm()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body, self._head_size = False, 0
        self._disarm()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Whatever the parser has stopped at."""
        status, self._refusal = self._refusal or HTTPStatus.BAD_REQUEST, None
        self._close_with(status)

    def _refuse(self, status: HTTPStatus) -> None:
        self._refusal = status
        raise HeadRefused

    def _slow(self) -> None:
        self._timer = None
        self._close_with(HTTPStatus.REQUEST_TIMEOUT)

    def _look(self) -> None:
        """At what has come of the body since the last look. While the app does not take what is there, nothing can."""
        self._timer = None
        if self._came < self.body_bytes and not self.flow.read_paused:
            self._close_with(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self._came = 0
            self._timer = self.loop.call_later(self.body_seconds, self._look)

    def _close_with(self, status: HTTPStatus) -> None:
        if self._ended or self.transport.is_closing():
            return
        # The bytes of a response that has begun are followed by nothing.
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(
                b"HTTP/1.1 %d %b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                % (status.value, status.phrase.encode())
            )
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._disarm()
        self._ended = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
        # With what is still on its way here unread, the kernel would take back what was answered.
        self._timer = self.loop.call_later(self.linger_seconds, self.transport.close)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
