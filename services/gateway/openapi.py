"""The OpenAPI document at /schema.

Bodies are read by `bodies.read` and answers pass through as bytes, so handlers have neither in their signature:
`described` says of each handler what it takes and gives, in pydantic's own JSON schema.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from litestar import Request
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import (
    Components,
    OpenAPIHeader,
    OpenAPIMediaType,
    OpenAPIResponse,
    Operation,
    Reference,
    RequestBody,
    Schema,
    SecurityScheme,
)
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from services.gateway import bodies, shapes
from services.gateway.problems import MEDIA_TYPE

_TEMPLATE = "#/components/schemas/{model}"

_PROBLEMS = {
    400: "Malformed cursor",
    401: "No valid credential",
    403: "The credential does not allow that",
    404: "No such thing, or somebody else's",
    409: "The state does not allow it",
    410: "The external id belonged to a deleted session",
    413: "Too large",
    422: "Not the documented shape",
    429: "Queue full, or too many turns",
    503: "The agent service or the registrations cannot be reached: try again with the same key",
    504: "min_sequence was not reached in time",
}

_SHAPES: tuple[type[BaseModel], ...] = (
    bodies.CreateSession,
    bodies.ChangeSession,
    bodies.SubmitTurn,
    bodies.ContinueTurn,
    bodies.ForkTurn,
    bodies.RegenerateTurn,
    shapes.Problem,
    shapes.InvalidProblem,
    shapes.Agent,
    shapes.CreatedSession,
    shapes.Session,
    shapes.SessionList,
    shapes.QueuedTurn,
    shapes.BranchedTurn,
    shapes.ContinuedTurn,
    shapes.Checkpoint,
    shapes.Turn,
    shapes.TurnList,
    shapes.InterruptedTurn,
    shapes.Status,
    shapes.MessageList,
    shapes.Projection,
    shapes.FoundTexts,
    shapes.HookRuns,
    shapes.EventPage,
    shapes.StreamTicket,
    shapes.Health,
)


def _reference(shape: type[BaseModel]) -> Reference:
    return Reference(ref=_TEMPLATE.format(model=shape.__name__))


def _answer(shape: type[BaseModel] | None, text: str, many: bool) -> OpenAPIResponse:
    if shape is None:
        return OpenAPIResponse(description=text)
    schema = Schema(type="array", items=_reference(shape)) if many else _reference(shape)  # type: ignore[arg-type]
    return OpenAPIResponse(description=text, content={"application/json": OpenAPIMediaType(schema=schema)})


def _refusal(status: int) -> OpenAPIResponse:
    shape = shapes.InvalidProblem if status == 422 else shapes.Problem
    headers: dict[str, OpenAPIHeader | Reference] = {}
    if status in (429, 503):
        headers["Retry-After"] = OpenAPIHeader(schema=Schema(type="integer"))  # type: ignore[arg-type]
    return OpenAPIResponse(
        description=_PROBLEMS[status],
        headers=headers or None,
        content={MEDIA_TYPE: OpenAPIMediaType(schema=_reference(shape))},
    )


def described(
    gives: Mapping[int, type[BaseModel] | None],
    *refuses: int,
    takes: type[BaseModel] | None = None,
    many: bool = False,
) -> type[Operation]:
    """The `operation_class` of a handler. `gives`: shape by status (`many`: a list of it); `refuses`: statuses of
    problems, beside 401 and 403, which all have."""
    responses = {str(status): _answer(shape, "Done", many) for status, shape in gives.items()}
    responses |= {str(status): _refusal(status) for status in sorted({401, 403, *refuses})}
    body = None
    if takes is not None:
        body = RequestBody(content={"application/json": OpenAPIMediaType(schema=_reference(takes))}, required=True)

    @dataclass
    class Described(Operation):
        def __post_init__(self) -> None:
            self.responses = dict(responses)
            self.request_body = body

    return Described


class _Document(JsonRenderPlugin):
    """The framework's document with our schemas: it fills in only those that it found in signatures."""

    def __init__(self, schemas: dict[str, Any]) -> None:
        super().__init__(path=["/", "/openapi.json"])
        self._schemas = schemas

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        """The JSON text."""
        components = openapi_schema.get("components", {})
        whole = {**openapi_schema, "components": {**components, "schemas": self._schemas}}
        return super().render(request, whole)


def config(version: str) -> OpenAPIConfig:
    """Served as JSON at /schema and /schema/openapi.json."""
    _, document = models_json_schema([(shape, "validation") for shape in _SHAPES], ref_template=_TEMPLATE)
    bearer = SecurityScheme(
        type="http", scheme="bearer", description="A user's JWT, or a session token for its one session"
    )
    return OpenAPIConfig(
        title="Turnlog",
        version=version,
        description="Durable agent chat: submit turns, watch events, replay them for ever.",
        use_handler_docstrings=True,
        path="/schema",
        render_plugins=[_Document(document["$defs"])],
        components=Components(security_schemes={"bearer": bearer}),
        security=[{"bearer": []}],
    )
