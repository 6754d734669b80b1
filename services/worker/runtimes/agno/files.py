"""Attachments for Agno: their content for the component, their name alone in what checkpoints keep."""

import base64
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, cast

import msgspec
from agno.media import Audio, File, Image, Video

from domain import media_types
from domain.history import PastTurn
from domain.parts import FilePart, Part
from domain.runtime import Attachments, Execution

_MARK = "turnlog-blob:"
_MARK_BYTES = _MARK.encode()
_FIELDS: dict[media_types.Kind, str] = {"image": "images", "audio": "audio", "video": "videos", "document": "files"}
_MEDIA: dict[str, Any] = {"images": Image, "audio": Audio, "videos": Video, "files": File}
_POSTED = {"images": "images", "audio": "audio", "videos": "videos", "input_files": "files"}
_DOCUMENTS = frozenset(File.valid_mime_types())

Media = dict[str, Any]
"""Arguments of Agno's `arun`: images, audio, videos, files."""

Read = Callable[[FilePart], Awaitable[bytes]]


class Files:
    """Of one execution: at most `all_bytes` of attachments are in memory; what is older or more is left out."""

    def __init__(self, attachments: Attachments) -> None:
        self._attachments = attachments
        self._left = attachments.all_bytes

    async def media(self, execution: Execution) -> Media:
        """What comes with the input, and what the caller named by an address. Raises RuntimeFailed."""
        told = execution.metadata.get("agentos")
        told = told if isinstance(told, dict) else {}
        about = told.get("files_metadata") or []
        found = await loaded(self._read, execution.input, about if isinstance(about, list) else [])
        for field, name in _POSTED.items():
            for one in told.get(field) or []:
                found.setdefault(name, []).append(_MEDIA[name](**one))
        return found

    async def filled(self, execution: Execution) -> Execution:
        """The execution, whose messages have the content of the files that they name; the newest first."""
        if not any(_MARK_BYTES in blob for turn in execution.past for blob in turn.messages) and not any(
            _MARK_BYTES in blob for blob in execution.messages
        ):
            return execution
        messages = await self._filled(execution.messages)
        past = [
            msgspec.structs.replace(turn, messages=await self._filled(turn.messages))
            for turn in reversed(execution.past)
        ]
        return cast(Execution, _Filled(execution, messages, past[::-1]))

    async def _filled(self, blobs: Sequence[bytes]) -> list[bytes]:
        trees = [msgspec.json.decode(blob) if _MARK_BYTES in blob else None for blob in blobs]
        contents: dict[str, bytes] = {}
        for name, size in {mark for tree in trees for mark in _marks(tree)}:
            if size <= self._left:
                contents[_mark(name, size)] = await self._read(FilePart(name, bytes=size))
        return [
            blob if tree is None else msgspec.json.encode(_with(tree, contents))
            for blob, tree in zip(blobs, trees, strict=True)
        ]

    async def _read(self, part: FilePart) -> bytes:
        content = await self._attachments.read(part)
        self._left -= len(content)
        return content


class _Filled:
    """An execution with other messages."""

    def __init__(self, execution: Execution, messages: list[bytes], past: list[PastTurn]) -> None:
        self._execution = execution
        self.messages = messages
        self.past = past

    def __getattr__(self, name: str) -> Any:
        return getattr(self._execution, name)


async def loaded(read: Read, parts: Iterable[Part], about: Sequence[Any] = ()) -> Media:
    """The files among the parts, as Agno has them. `about`: what was said of each, by position."""
    found: Media = {}
    for number, part in enumerate(part for part in parts if isinstance(part, FilePart)):
        field = _FIELDS[media_types.kind_of(part.media_type) or "document"]
        fields: dict[str, Any] = {
            "id": _mark(part.blob, part.bytes),
            "content": await read(part),
            "mime_type": part.media_type,
            "format": _ending(part),
        }
        if number < len(about) and isinstance(about[number], dict):
            fields["metadata"] = about[number]
        if field == "files":
            fields["filename"] = part.name
            fields["mime_type"] = part.media_type if part.media_type in _DOCUMENTS else None
        found.setdefault(field, []).append(_MEDIA[field](**fields))
    return found


def part_of(media: Any, known: Iterable[FilePart]) -> FilePart | None:
    """The part that this is of, as it was given."""
    return next((part for part in known if media.id == _mark(part.blob, part.bytes)), None)


def bare(tree: Any) -> Any:
    """The same without the content of files that the log knows by name."""
    if isinstance(tree, dict):
        named = isinstance(tree.get("id"), str) and tree["id"].startswith(_MARK)
        return {key: bare(value) for key, value in tree.items() if not (named and key == "content")}
    return [bare(value) for value in tree] if isinstance(tree, list) else tree


def _mark(name: str, size: int) -> str:
    return f"{_MARK}{name}:{size}"


def _marks(tree: Any) -> set[tuple[str, int]]:
    """Names and sizes of the files in it."""
    if isinstance(tree, dict):
        found = {mark for value in tree.values() for mark in _marks(value)}
        if isinstance(tree.get("id"), str) and tree["id"].startswith(_MARK):
            name, _, size = tree["id"].removeprefix(_MARK).partition(":")
            found.add((name, int(size)))
        return found
    return {mark for value in tree for mark in _marks(value)} if isinstance(tree, list) else set()


def _with(tree: Any, contents: dict[str, bytes]) -> Any:
    """With contents in; what has none is left out of its list, since it would be no media object."""
    if isinstance(tree, dict):
        made = {key: _with(value, contents) for key, value in tree.items()}
        return made | {"content": _encoded(made, contents[made["id"]])} if _named(tree) else made
    if isinstance(tree, list):
        return [_with(value, contents) for value in tree if not _named(value) or value["id"] in contents]
    return tree


def _encoded(media: dict[str, Any], content: bytes) -> str:
    """As Agno writes it: text as it is, anything else in base64."""
    if str(media.get("mime_type") or "").startswith("text/"):
        with contextlib.suppress(UnicodeDecodeError):
            return content.decode()
    return base64.b64encode(content).decode()


def _named(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("id"), str) and value["id"].startswith(_MARK)


def _ending(part: FilePart) -> str | None:
    if part.name and "." in part.name:
        return part.name.rpartition(".")[2].lower()
    return part.media_type.partition("/")[2] if part.media_type else None
