"""Refusals in AgentOS's words: `{"detail": …}`, whatever went wrong."""

from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.types import ExceptionHandlersMap

from domain import errors
from services.gateway import refusals
from services.gateway.names import BadIdempotencyKey
from services.gateway.problems import RETRY_AFTER_SECONDS, log_unexpected, status_of
from services.gateway.rates import RateLimited


class Refused(Exception):
    """An answer that is an error: its status and detail, as AgentOS gives them."""

    def __init__(self, status: int, detail: Any, headers: dict[str, str] | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.detail = detail
        self.headers = headers or {}


def field_fault(place: str, name: str, type_: str, message: str, said: Any) -> Refused:
    """A 422 as pydantic words it."""
    return Refused(422, [{"type": type_, "loc": [place, name], "msg": message, "input": said}])


def missing(place: str, name: str) -> Refused:
    return field_fault(place, name, "missing", "Field required", None)


_DETAILS: tuple[tuple[type[errors.TurnlogError], str], ...] = (
    (errors.SessionNotFound, "Session not found"),
    (errors.TurnNotFound, "Run not found"),
    (errors.QueueFull, "Job queue is full"),
    (errors.IdempotencyMismatch, "Idempotency-Key was already used by a different request"),
    (BadIdempotencyKey, "Idempotency-Key must have 1 to 255 printable ASCII characters"),
    (refusals.UserNeeded, "Insufficient permissions. Required scope(s): agents:run"),
)


def json_answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response[bytes]:
    """Any JSON answer."""
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json", headers=headers)


def refusal(error: Refused) -> Response[bytes]:
    return json_answer({"detail": error.detail}, error.status, error.headers)


def _refused(_: Request[Any, Any, Any], error: Refused) -> Response[bytes]:
    return refusal(error)


def _ours(request: Request[Any, Any, Any], error: errors.TurnlogError) -> Response[bytes]:
    return refusal(refused_as(error, request.headers.get("authorization")))


def refused_as(error: errors.TurnlogError, authorization: str | None = None) -> Refused:
    """One of our errors in AgentOS's words."""
    status, _ = status_of(error)
    detail = next((text for kind, text in _DETAILS if isinstance(error, kind)), error.detail)
    headers: dict[str, str] = {}
    if isinstance(error, refusals.Unauthenticated):
        detail = "Authorization header missing" if authorization is None else "Invalid token"
        headers["WWW-Authenticate"] = "Bearer"
    if status in RETRY_AFTER_SECONDS:
        retry = error.fields.get("retry_after") if isinstance(error, RateLimited) else None
        headers["Retry-After"] = str(retry or RETRY_AFTER_SECONDS[status])
    return Refused(status, detail, headers)


def _frameworks(_: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    status = error.status_code
    if status == 400 and isinstance(error.extra, list):
        faults = [
            {
                "type": "value_error",
                "loc": [str(getattr(item.get("source"), "value", item.get("source", "query"))), item.get("key", "")],
                "msg": item.get("message", ""),
                "input": None,
            }
            for item in error.extra
            if isinstance(item, dict)
        ]
        return json_answer({"detail": faults}, 422)
    words = {404: "Not Found", 405: "Method Not Allowed", 413: "Content Too Large"}
    return json_answer({"detail": words.get(status, "Bad Request")}, status, dict(error.headers or {}))


_STEPS = ("agents", "teams", "workflows", "sessions", "config", "info", "health", "eval-runs", "models")


def with_agentos(handlers: ExceptionHandlersMap, prefix: str) -> ExceptionHandlersMap:
    """Handlers for the whole app: a path that no route has is answered in AgentOS's words where it is one of its."""
    if prefix == "off":
        return handlers
    root = prefix.rstrip("/")
    ours: tuple[str, ...] = (root + "/",) if root else tuple(f"/{step}" for step in _STEPS)
    others: Any = handlers[HTTPException]

    def handle(request: Request[Any, Any, Any], error: HTTPException) -> Response[Any]:
        answer: Response[Any] = (_frameworks if request.url.path.startswith(ours) else others)(request, error)
        return answer

    return {**handlers, HTTPException: handle}


def _strange(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    log_unexpected(request, error)
    return json_answer({"detail": f"Internal server error ({type(error).__name__})"}, 500)


HANDLERS: ExceptionHandlersMap = {
    Refused: _refused,
    errors.TurnlogError: _ours,
    HTTPException: _frameworks,
    Exception: _strange,
}
