"""What requests may say. Unknown fields are refused, types are not bent, text that no database can keep is no text."""

import math
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from litestar import Request
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from domain.parts import Part, TextPart
from domain.texts import unsafe
from services.gateway.names import external_id_fault
from services.gateway.refusals import InvalidRequest

Body = TypeVar("Body", bound="RequestBody")

MAX_TITLE = 1000
MAX_METADATA_BYTES = 16 * 1024
_MAX_FAULTS = 20


def _fault(code: str, sentence: str) -> PydanticCustomError:
    return PydanticCustomError(code, "{sentence}", {"sentence": sentence})


def _safe(text: str) -> str:
    if unsafe(text):
        raise _fault("unsafe_text", "must not contain U+0000 or lone surrogates")
    return text


def _external_id(name: str) -> str:
    fault = external_id_fault(name)
    if fault is not None:
        raise _fault("external_id", fault)
    return name


def _safe_json(value: dict[str, Any]) -> dict[str, Any]:
    if len(msgspec.json.encode(value)) > MAX_METADATA_BYTES:
        raise _fault("metadata_size", f"must not have more than {MAX_METADATA_BYTES} bytes")
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            _safe(item)
        elif isinstance(item, dict):
            stack += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            stack += item
        elif isinstance(item, float) and not math.isfinite(item):
            raise _fault("json_number", "must not contain NaN or Infinity")
        elif isinstance(item, int) and not -(2**63) <= item < 2**63:
            raise _fault("json_number", "must not contain integers of more than 64 bits")
    return value


def _parts(value: Any) -> Any:
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


# Patterns are for readers of the OpenAPI document; the validators decide, and say more than a pattern can.
SafeText = Annotated[str, AfterValidator(_safe), Field(json_schema_extra={"pattern": r"^[^\u0000]*$"})]
ExternalId = Annotated[
    str,
    AfterValidator(_external_id),
    Field(min_length=1, max_length=255, json_schema_extra={"pattern": r"^[^\u0000-\u001f\u007f-\u009f/\\?#]+$"}),
]
ContextVersion = Annotated[SafeText, Field(min_length=1, max_length=255)]
Title = Annotated[SafeText, Field(max_length=MAX_TITLE)]


class RequestBody(BaseModel):
    """What all bodies share."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class TextInput(RequestBody):
    """One part of an input."""

    type: Literal["text"]
    text: Annotated[SafeText, Field(min_length=1)]


class CreateSession(RequestBody):
    """`POST /v1/sessions`. With an `external_id` it may be repeated: the same body gives the same session."""

    agent_id: Annotated[SafeText, Field(min_length=1, max_length=255)]
    external_id: ExternalId | None = None
    title: Title | None = None
    metadata: Annotated[dict[str, Any], AfterValidator(_safe_json)] | None = None
    context_version: ContextVersion | None = None


class ChangeSession(RequestBody):
    """`PATCH /v1/sessions/{id}`: what is absent stays, null clears."""

    title: Title | None = None
    starred: bool = False
    context_version: ContextVersion | None = None


class SubmitTurn(RequestBody):
    """`POST /v1/sessions/{id}/turns`."""

    input: Annotated[
        list[TextInput],
        BeforeValidator(_parts, json_schema_input_type=Annotated[str, Field(min_length=1)] | list[TextInput]),
        Field(min_length=1, max_length=1000),
    ]
    if_busy: Literal["queue", "reject", "interrupt"] = "queue"

    def parts(self) -> list[Part]:
        """The input as the domain has it."""
        return [TextPart(text=part.text) for part in self.input]


def _pointer(location: tuple[int | str, ...]) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in location)


async def read(request: Request[Any, Any, Any], shape: type[Body]) -> Body:
    """The request's body in that shape, whatever its Content-Type says. Raises InvalidRequest with a pointer for each
    fault; the framework bounds its size while reading (413)."""
    try:
        return shape.model_validate_json(await request.body())
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        raise InvalidRequest(
            errors=[{"pointer": _pointer(fault["loc"]), "message": fault["msg"]} for fault in faults[:_MAX_FAULTS]]
        ) from None
