"""What requests may say. Unknown fields are refused, types are not bent, text that no database can keep is no text."""

import math
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from litestar import Request
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from domain.parts import Answer, Part, TextPart
from domain.texts import unsafe
from services.gateway.names import external_id_fault
from services.gateway.refusals import InvalidRequest

Body = TypeVar("Body", bound="RequestBody")

MAX_TITLE = 1000
MAX_METADATA_BYTES = 16 * 1024
MAX_ANSWER_BYTES = 64 * 1024
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
    _within(value, MAX_METADATA_BYTES)
    return value


def _safe_answer(value: Any) -> Any:
    _within(value, MAX_ANSWER_BYTES)
    return value


def _within(value: Any, limit: int) -> None:
    if len(msgspec.json.encode(value)) > limit:
        raise _fault("size", f"must not have more than {limit} bytes")
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


Input = Annotated[
    list[TextInput],
    BeforeValidator(_parts, json_schema_input_type=Annotated[str, Field(min_length=1)] | list[TextInput]),
    Field(min_length=1, max_length=1000),
]


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

    input: Input
    if_busy: Literal["queue", "reject", "interrupt"] = "queue"

    def parts(self) -> list[Part]:
        """The input as the domain has it."""
        return [TextPart(text=part.text) for part in self.input]


class AnswerGiven(RequestBody):
    """One person's answer to one question. Which fields decide it depends on the question's kind; `item_id` as the
    question shows it says which one is meant, since call ids are used again."""

    tool_call_id: Annotated[SafeText, Field(min_length=1, max_length=1000)]
    item_id: Annotated[SafeText, Field(min_length=1, max_length=1000)] | None = None
    approved: bool | None = None
    note: Annotated[SafeText, Field(max_length=4000)] | None = None
    arguments: Annotated[dict[str, Any], AfterValidator(_safe_answer)] | None = None
    result: Annotated[Any, AfterValidator(_safe_answer)] = None

    def answer(self, by: str) -> Answer:
        """The answer as the domain has it; when it was given is the store's to say."""
        return Answer(approved=self.approved, note=self.note, arguments=self.arguments, result=self.result, by=by)


def _each_once(answers: list[AnswerGiven]) -> list[AnswerGiven]:
    if len({answer.tool_call_id for answer in answers}) < len(answers):
        raise _fault("answers", "must not answer the same tool call twice")
    return answers


class ContinueTurn(RequestBody):
    """`POST …/continue`: some or all of the answers that a paused turn waits for."""

    answers: Annotated[list[AnswerGiven], AfterValidator(_each_once), Field(min_length=1, max_length=100)]


class ForkTurn(RequestBody):
    """`POST …/fork`. `from`: the sequence of a checkpoint, the turn's end, or before its user message."""

    place: Annotated[int, Field(ge=1, le=2**62)] | Literal["end", "last_user"] = Field(alias="from")
    input: Input | None = None

    def parts(self) -> list[Part] | None:
        """The input as the domain has it."""
        return None if self.input is None else [TextPart(text=part.text) for part in self.input]


class RegenerateTurn(RequestBody):
    """`POST …/regenerate`; an empty body is one without wishes."""

    replace_original: bool = True
    additional_instructions: Annotated[SafeText, Field(min_length=1)] | None = None


def _pointer(location: tuple[int | str, ...]) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in location)


async def read(request: Request[Any, Any, Any], shape: type[Body]) -> Body:
    """The request's body in that shape, whatever its Content-Type says. Raises InvalidRequest with a pointer for each
    fault; the framework bounds its size while reading (413)."""
    return _decoded(await request.body(), shape)


async def read_wishes(request: Request[Any, Any, Any], shape: type[Body]) -> Body:
    """As `read`, where nothing in the body is required and so the body is not."""
    return _decoded(await request.body() or b"{}", shape)


def _decoded(body: bytes, shape: type[Body]) -> Body:
    try:
        return shape.model_validate_json(body)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        raise InvalidRequest(
            errors=[{"pointer": _pointer(fault["loc"]), "message": fault["msg"]} for fault in faults[:_MAX_FAULTS]]
        ) from None
