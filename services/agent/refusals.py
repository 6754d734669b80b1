"""Errors on the internal API: `{"code", "fields"}`, from which the gateway's client raises the same error again.

The status is for people and proxies; the client goes by the code. What has no code of the domain's is an unclear reply
to it, and is asked for again elsewhere.
"""

import traceback
from functools import cache
from typing import Any

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.types import ExceptionHandlersMap

from domain import errors

log = structlog.get_logger("turnlog.agent")

STATUS: tuple[tuple[type[errors.TurnlogError], int], ...] = (
    (errors.NotFound, 404),
    (errors.Conflict, 409),
    (errors.StaleFence, 409),
    (errors.NothingToClaim, 409),
    (errors.TooLarge, 413),
    (errors.Invalid, 422),
    (errors.QueueFull, 429),
    (errors.TooManyTurns, 429),
    (errors.NotAdmitted, 429),
    (errors.Unavailable, 503),
    (errors.InternalFault, 500),
)
"""The first class that fits wins."""


def refusal(status: int, code: str, fields: dict[str, Any]) -> Response[bytes]:
    """The response that carries an error."""
    body = msgspec.json.encode({"code": code, "fields": fields})
    return Response(body, status_code=status, media_type="application/json")


@cache
def _tell_once(reason: str) -> None:
    log.error("agent.version_mismatch", reason=reason)


def _ours(_: Request[Any, Any, Any], error: errors.TurnlogError) -> Response[bytes]:
    if isinstance(error, errors.VersionMismatch):
        # The gateway asks another process; this one should be replaced, which nobody needs to read for each request.
        _tell_once(str(error))
    status = next((status for kind, status in STATUS if isinstance(error, kind)), 500)
    return refusal(status, error.code, error.fields)


def _frameworks(_: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    return refusal(error.status_code, f"http_{error.status_code}", {})


def _unexpected(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    # The message of a stranger's exception may quote a payload, so only its type and place are logged.
    place = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-4:]]
    log.error("request_failed", route=request.scope.get("path_template"), error=type(error).__name__, place=place)
    return refusal(500, "http_500", {})


HANDLERS: ExceptionHandlersMap = {
    errors.TurnlogError: _ours,
    HTTPException: _frameworks,
    Exception: _unexpected,
}
