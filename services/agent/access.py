"""Who may call: whoever shows the secret that gateways and agents share."""

import hmac
from typing import Any

from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException
from litestar.handlers.base import BaseRouteHandler
from litestar.types import Guard


def secret_guard(secret: str) -> Guard:
    """A guard that compares in constant time. Raises ValueError for an empty secret: with it everybody would pass."""
    if not secret:
        raise ValueError("the service secret is empty")
    expected = f"Bearer {secret}".encode()

    # A coroutine, because the framework would run a plain function in a thread.
    async def guard(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        shown = connection.headers.get("authorization", "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(shown, expected):
            raise NotAuthorizedException()

    return guard
