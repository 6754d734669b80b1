"""Errors as application/problem+json (RFC 9457): the one place where an error becomes a status."""

import traceback
from typing import Any

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.types import ExceptionHandlersMap

from domain import errors
from services.gateway import refusals
from services.gateway.rates import RateLimited

MEDIA_TYPE = "application/problem+json"

STATUS: tuple[tuple[type[errors.TurnlogError], int, str], ...] = (
    (refusals.Unauthenticated, 401, "Unauthorized"),
    (refusals.Forbidden, 403, "Forbidden"),
    (refusals.SessionGone, 410, "Gone"),
    (refusals.BadListCursor, 400, "Bad Request"),
    (errors.BadCursor, 400, "Bad Request"),
    (errors.NotFound, 404, "Not Found"),
    (errors.Conflict, 409, "Conflict"),
    (errors.StaleFence, 409, "Conflict"),
    (errors.NothingToClaim, 409, "Conflict"),
    (errors.TooLarge, 413, "Content Too Large"),
    (errors.Invalid, 422, "Unprocessable Content"),
    (errors.QueueFull, 429, "Too Many Requests"),
    (errors.TooManyTurns, 429, "Too Many Requests"),
    (errors.NotAdmitted, 429, "Too Many Requests"),
    (RateLimited, 429, "Too Many Requests"),
    (errors.MinSequenceTimeout, 504, "Gateway Timeout"),
    (errors.Unavailable, 503, "Service Unavailable"),
    (errors.InternalFault, 500, "Internal Server Error"),
)
"""The first class that fits wins, so narrower ones come first."""

RETRY_AFTER_SECONDS = {429: 5, 503: 1}

_TITLES = {400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 413: "Content Too Large"}

_RENAMED = {"status": "turn_status"}

log = structlog.get_logger("turnlog.gateway")


def status_of(error: errors.TurnlogError) -> tuple[int, str]:
    """HTTP status and title of an error."""
    for kind, status, title in STATUS:
        if isinstance(error, kind):
            return status, title
    return 500, "Internal Server Error"


def problem(status: int, title: str, code: str, detail: str, fields: dict[str, Any] | None = None) -> Response[bytes]:
    """A problem+json response; typed fields stand beside the standard members."""
    body = {
        # A turn's status must not hide the HTTP status.
        **{_RENAMED.get(name, name): value for name, value in (fields or {}).items()},
        "type": f"urn:turnlog:problem:{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
    }
    headers = {}
    if status in RETRY_AFTER_SECONDS:
        headers["Retry-After"] = str((fields or {}).get("retry_after", RETRY_AFTER_SECONDS[status]))
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(msgspec.json.encode(body), status_code=status, media_type=MEDIA_TYPE, headers=headers)


def problem_of(error: errors.TurnlogError) -> Response[bytes]:
    """The response for one of our errors."""
    status, title = status_of(error)
    return problem(status, title, error.code, error.detail, error.fields)


def _place(item: dict[str, Any]) -> str:
    source = item.get("source", "query")
    return str(getattr(source, "value", source))


def _ours(_: Request[Any, Any, Any], error: errors.TurnlogError) -> Response[bytes]:
    return problem_of(error)


def _frameworks(_: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    status = error.status_code
    if status == 400 and isinstance(error.extra, list):
        # Parameters of the path or the query; bodies are read by services.gateway.bodies.
        found = [
            {"pointer": f"/{_place(item)}/{item.get('key', '')}", "message": item["message"]} for item in error.extra
        ]
        return problem_of(refusals.InvalidRequest(errors=found))
    title = _TITLES.get(status, "Internal Server Error" if status >= 500 else "Refused")
    code = title.lower().replace(" ", "_")
    response = problem(status, title, code, title + ".")
    for name, value in (error.headers or {}).items():
        response.set_header(name, value)
    return response


def log_unexpected(request: Request[Any, Any, Any], error: Exception) -> None:
    """A bug of ours. The message of a stranger's exception may quote what the client sent, so only its type and place
    are logged."""
    place = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-4:]]
    log.error("request_failed", route=request.scope.get("path_template"), error=type(error).__name__, place=place)


def _unexpected(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    log_unexpected(request, error)
    return problem(500, "Internal Server Error", "internal_error", "Something went wrong; it was logged.")


HANDLERS: ExceptionHandlersMap = {
    errors.TurnlogError: _ours,
    HTTPException: _frameworks,
    Exception: _unexpected,
}
