"""Attachments in model messages: their content for the model, their name alone in what checkpoints keep."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote, unquote

from pydantic_ai.messages import BinaryContent, DocumentUrl, ModelMessage, ModelRequest, UserContent, UserPromptPart

from domain.parts import FilePart, Part, TextPart
from domain.runtime import Attachments

_SCHEME = "turnlog-blob:"


class Files:
    """Of one execution: at most `all_bytes` of attachments are in memory; what is older or more is named to the model
    and left out."""

    def __init__(self, attachments: Attachments) -> None:
        self._attachments = attachments
        self._left = attachments.all_bytes
        self._held: list[tuple[bytes, FilePart]] = []

    async def prompt(self, parts: Sequence[Part]) -> str | list[UserContent] | None:
        """What the user says in this turn; None in a fork without an input. Raises RuntimeFailed for a file that is
        gone."""
        found = [await self._content(part) if isinstance(part, FilePart) else part.text for part in parts]
        if not found:
            return None
        return found[0] if len(found) == 1 and isinstance(found[0], str) else found

    async def filled(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        """The messages, the newest files first, with the content of those that they name."""
        contents: dict[int, UserContent] = {}
        for message in reversed(messages):
            for one in _contents(message):
                part = _part_of(one)
                if part is not None:
                    contents[id(one)] = await self._content(part)
        return [_changed(message, lambda one: contents.get(id(one), one)) for message in messages]

    def bare(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        """The messages, which name the files that this execution has read."""
        return [_changed(message, self._named) for message in messages] if self._held else list(messages)

    async def _content(self, part: FilePart) -> UserContent:
        if part.bytes > self._left:
            return f"[The file {part.name or part.blob} is left out here.]"
        data = await self._attachments.read(part)
        self._left -= len(data)
        self._held.append((data, part))
        return BinaryContent(data, media_type=part.media_type or "application/octet-stream")

    def _named(self, one: UserContent) -> UserContent:
        if isinstance(one, BinaryContent):
            for data, part in self._held:
                # The very bytes, as a rule: then they are not compared.
                if one.data is data or (len(one.data) == len(data) and one.data == data):
                    return name_of(part)
        return one


def asked(parts: Sequence[Part]) -> str | list[UserContent]:
    """What a turn's input said, with the names of its files."""
    if all(isinstance(part, TextPart) for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, TextPart))
    return [name_of(part) if isinstance(part, FilePart) else part.text for part in parts]


def name_of(part: FilePart) -> DocumentUrl:
    """How checkpoints name a file; no model sees this."""
    place = f"{_SCHEME}{part.blob}/{part.bytes}/{quote(part.name or '', safe='')}"
    return DocumentUrl(url=place, media_type=part.media_type or "application/octet-stream")


def _part_of(one: Any) -> FilePart | None:
    if not isinstance(one, DocumentUrl) or not one.url.startswith(_SCHEME):
        return None
    blob, size, name = one.url.removeprefix(_SCHEME).split("/", 2)
    return FilePart(blob, one.media_type, unquote(name) or None, int(size))


def _contents(message: ModelMessage) -> list[UserContent]:
    if not isinstance(message, ModelRequest):
        return []
    return [
        one
        for part in message.parts
        if isinstance(part, UserPromptPart) and not isinstance(part.content, str)
        for one in part.content
    ]


def _changed(message: ModelMessage, change: Callable[[UserContent], UserContent]) -> ModelMessage:
    """The same message where nothing changes."""
    if not any(change(one) is not one for one in _contents(message)):
        return message
    assert isinstance(message, ModelRequest)
    parts = [
        replace(part, content=[change(one) for one in part.content])
        if isinstance(part, UserPromptPart) and not isinstance(part.content, str)
        else part
        for part in message.parts
    ]
    return replace(message, parts=parts)
