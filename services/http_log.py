"""One line and one observation for each HTTP request: method, route template, status, duration; of the gateway also the
session, turn and sequence that it was about. Never a path, a query or a header, since these hold names, tickets and
tokens."""

import time
from collections.abc import Callable
from typing import Any

from litestar.types import ASGIApp, Message, Receive, Scope, Send
from prometheus_client import CollectorRegistry, Histogram

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_NO_ROUTE = "(none)"
_ABORTED = 499


class HttpLog:
    """ASGI app around a Litestar app. `say`: where a request's line goes, such as a logger's `info`.

    A stream's duration is how long it was open, so streams stand with the other requests but in the highest bucket.
    """

    def __init__(self, app: ASGIApp, registry: CollectorRegistry, say: Callable[..., Any]) -> None:
        self._app = app
        self._say = say
        self._seconds = Histogram(
            "turnlog_http_request_seconds",
            "HTTP requests by what they asked for and how they ended",
            ["method", "route", "status"],
            registry=registry,
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes everything through."""
        if scope["type"] != "http":  # type: ignore[comparison-overlap]
            await self._app(scope, receive, send)
            return
        status = _ABORTED
        method: str = scope["method"]  # type: ignore[typeddict-item]
        begun = time.perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            seconds = time.perf_counter() - begun
            route = scope.get("path_template") or _NO_ROUTE
            method = method if method in _METHODS else "OTHER"
            self._seconds.labels(method, route, str(status)).observe(seconds)
            self._say("http_request", method=method, route=route, status=status, seconds=round(seconds, 6))
