"""What a request showed of the contract: its status, the words of a refusal, the form of its body, its events."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.support.sse import SseParser

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_STATES = re.compile(r"^(session_state|metadata|.*\.session_state|.*\.tool_args|.*\.metadata|.*\.arguments)$")
"""What users put there is theirs."""


@dataclass
class Seen:
    """`row`: the line of the table that says why ours is another answer altogether, which `ours` then tells."""

    label: str
    row: str | None = None
    ours: Any = None
    status: int = 0
    media: str = ""
    detail: Any = None
    form: frozenset[str] = frozenset()
    events: list[tuple[str, frozenset[str]]] = field(default_factory=list)
    fact: Any = None

    @property
    def answer(self) -> Any:
        """What `ours` is compared with."""
        if self.fact is not None:
            return self.fact
        return self.status if self.detail is None else (self.status, self.detail)


def seen_of(label: str, answer: httpx2.Response, row: str | None, ours: Any) -> tuple[Seen, Any]:
    """And the body: frames of a stream as a list of their data."""
    seen = Seen(label, row, ours, answer.status_code, answer.headers.get("content-type", "").partition(";")[0])
    if seen.media == "text/event-stream":
        frames = [(frame.event or "", json.loads(frame.data)) for frame in SseParser().feed(answer.content)]
        for name, data in frames:
            assert data.get("event", name) == name
            made = ("(empty) " if name.endswith("RunContent") and not data["content"] else "") + name, form_of(data)
            # Pieces of a text are as many as the provider makes.
            if not (seen.events and seen.events[-1] == made and name.endswith("RunContent")):
                seen.events.append(made)
        return seen, [data for _, data in frames]
    body = answer.json() if answer.content else None
    if isinstance(body, dict) and "detail" in body:
        seen.detail = _told(body["detail"])
    else:
        seen.form = form_of(body)
    if answer.status_code == 204:
        seen.media = ""
    return seen, body


def form_of(value: Any) -> frozenset[str]:
    """`path:type` of everything in it; entries of a list are as one."""
    return frozenset(_paths("", value))


def _told(detail: Any) -> Any:
    return _ID.sub("<id>", detail) if isinstance(detail, str) else detail


def _paths(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield f"{path}:object"
        if not _STATES.match(path):
            for name, one in value.items():
                yield from _paths(f"{path}.{name}" if path else name, one)
    elif isinstance(value, list):
        yield f"{path}:array"
        for one in value:
            yield from _paths(f"{path}[]", one)
    else:
        yield f"{path}:{_kind(value)}"


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return {bool: "boolean", str: "string"}.get(type(value), "number")
