"""What AgentOS's clients post: forms, urlencoded or multipart, read as its own server reads them."""

import math
from collections.abc import Collection, Iterable
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from litestar import Request
from litestar.datastructures import UploadFile
from litestar.exceptions import ClientException

from domain.texts import unsafe
from services.gateway.dialects.agentos.answers import Refused, field_fault, missing

HttpRequest = Request[Any, Any, Any]

MAX_EXTRA_BYTES = 64 * 1024
_TRUE = frozenset({"true", "1", "yes", "on", "t", "y"})
_FALSE = frozenset({"false", "0", "no", "off", "f", "n"})
_CONVERTED: dict[str, Any] = {"true": True, "false": False, "null": None, "none": None}
_JSON = frozenset({"session_state", "dependencies", "knowledge_filters"})
MEDIA = ("images", "audio", "videos", "input_files")
"""Fields that hold files, as JSON."""

MAX_TEXT_FACTOR = 4
"""A form may write a character in several bytes; the exact bound is the domain's."""


class Form:
    """The fields of one request. An empty value counts as missing."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts
        for name, value in texts.items():
            if unsafe(value) or unsafe(name):
                raise field_fault("body", name[:100], "string_unicode", "Input should be a valid unicode string", None)

    def text(self, name: str) -> str | None:
        return self._texts.get(name) or None

    def needed(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise missing("body", name)
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() in _TRUE:
            return True
        if value.lower() in _FALSE:
            return False
        raise field_fault(
            "body", name, "bool_parsing", "Input should be a valid boolean, unable to interpret input", value
        )

    def number(self, name: str) -> int | None:
        value = self.text(name)
        return None if value is None else whole_number("body", name, value)

    def array(self, name: str) -> list[Any] | None:
        """A JSON array in a field; None where there is none. Raises Refused in the words of that field."""
        value = self.text(name)
        if value is None:
            return None
        try:
            said = msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise Refused(400, f"Invalid JSON in {name} field") from error
        if not isinstance(said, list) or not all(isinstance(one, dict) for one in said):
            raise Refused(400, f"Invalid structure or content for {name}: expected a JSON array of objects")
        if not storable(said):
            raise Refused(400, f"Invalid structure or content for {name}: numbers or text that cannot be kept")
        return said

    def media(self, name: str) -> list[dict[str, Any]]:
        """The objects in a field that holds files. Raises Refused."""
        if self.text(name) is None:
            return []
        said = self.json(name)
        if not isinstance(said, list) or not all(isinstance(one, dict) for one in said):
            raise Refused(422, f"Invalid {name}: expected a JSON array of objects")
        return said

    def json(self, name: str) -> Any:
        """A field's JSON; None where it is none, or none that can be kept."""
        return _json(self.text(name) or "")

    def rest(self, declared: Collection[str]) -> dict[str, Any]:
        """Fields that the route does not declare, decoded as AgentOS hands them to a run."""
        said: dict[str, Any] = {}
        for name, value in self._texts.items():
            if name in declared or not value:
                continue
            converted = _converted(name, value)
            if converted is not _DROPPED:
                said[name] = converted
        if len(msgspec.json.encode(said)) > MAX_EXTRA_BYTES:
            raise Refused(413, f"Further fields may have {MAX_EXTRA_BYTES} bytes in all")
        return said


_DROPPED = object()


def _converted(name: str, value: str) -> Any:
    if name == "metadata":
        said = _json(value)
        if not isinstance(said, dict):
            raise Refused(400, "Invalid metadata parameter: expected a JSON object")
        return said
    if name in _JSON:
        said = _json(value)
        return said if isinstance(said, dict | list) else _DROPPED
    if name == "output_schema":
        said = _json(value)
        if not isinstance(said, dict):
            raise Refused(422, "Invalid output_schema: expected a JSON object schema")
        return said
    return _CONVERTED.get(value.lower(), value)


def _json(text: str) -> Any:
    try:
        said = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    return said if storable(said) else None


def storable(value: Any) -> bool:
    """PostgreSQL's json keeps it, and whoever reads it gets it back."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, str):
            if unsafe(one):
                return False
        elif isinstance(one, dict):
            stack += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            stack += one
        elif (isinstance(one, float) and not math.isfinite(one)) or (
            isinstance(one, int) and not -(2**63) <= one < 2**63
        ):
            return False
    return True


def whole_number(place: str, name: str, value: str) -> int:
    """Raises Refused, as pydantic words it."""
    try:
        if len(value) < 20 and value.isascii():
            return int(value)
    except ValueError:
        pass
    message = "Input should be a valid integer, unable to parse string as an integer"
    raise field_fault(place, name, "int_parsing", message, value)


def bounded(place: str, name: str, value: str | None, default: int, low: int, high: int) -> int:
    """A whole number between these. Raises Refused, as pydantic words it."""
    if not value:
        return default
    number = whole_number(place, name, value)
    fault = {"loc": [place, name], "input": value}
    if number < low:
        words = f"Input should be greater than or equal to {low}"
        raise Refused(422, [{"type": "greater_than_equal", "msg": words, **fault, "ctx": {"ge": low}}])
    if number > high:
        words = f"Input should be less than or equal to {high}"
        raise Refused(422, [{"type": "less_than_equal", "msg": words, **fault, "ctx": {"le": high}}])
    return number


async def read_form(request: HttpRequest) -> Form:
    """The posted fields; none where the body is something else."""
    kind, options = request.content_type
    if kind == "application/x-www-form-urlencoded":
        body = (await request.body()).decode("utf-8", "replace")
        return Form(dict(parse_qsl(body, keep_blank_values=True, errors="replace")))
    if kind == "multipart/form-data" and "boundary" in options:
        try:
            posted = await request.form()
        except (ClientException, UnicodeError) as error:
            if getattr(error, "status_code", 400) == 413:
                raise
            raise Refused(400, "There was an error parsing the body") from error
        return _of_parts(posted.multi_items())
    return Form({})


def _of_parts(parts: Iterable[tuple[str, Any]]) -> Form:
    """Files are for the route that takes them."""
    return Form({name: str(value) for name, value in parts if value is not None and not isinstance(value, UploadFile)})
