"""A posted form with files, read as it arrives: what is too large is refused then, and never held in memory."""

import hashlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from multipart import (  # type: ignore[import-untyped] # what the framework parses with, too
    MultipartSegment,
    ParserError,
    ParserLimitReached,
    PushMultipartParser,
)

from domain import media_types
from domain.parts import FilePart
from infra.settings.groups import Limits
from services.gateway.dialects.agentos.answers import Refused
from services.gateway.dialects.agentos.forms import MAX_TEXT_FACTOR, Form, HttpRequest

_IN_MEMORY = 256 * 1024
_PIECE = 256 * 1024
_MOST_PARTS = 1000
_MAX_NAME = 255
_BASE64 = 3 / 2
"""Bytes of a form for a byte of a file in base64, with what a form's encoding adds."""


class UploadLimits(msgspec.Struct, frozen=True, kw_only=True):
    """In bytes, but for `files`. `text`: all fields together; `encoded`: those that hold files in base64."""

    files: int
    file: int
    total: int
    text: int
    encoded: int

    @staticmethod
    def of(limits: Limits) -> "UploadLimits":
        """As the settings say."""
        return UploadLimits(
            files=limits.attachments,
            file=int(limits.attachment_bytes),
            total=int(limits.attachments_bytes),
            text=int(limits.input_bytes) * MAX_TEXT_FACTOR,
            encoded=int(limits.attachment_bytes * _BASE64),
        )

    @property
    def body(self) -> int:
        """Of the whole request."""
        return self.total + self.text + self.encoded + _MOST_PARTS * 1024


class Upload:
    """One file: its beginning in memory, a larger one on disk until it is closed."""

    def __init__(self, name: str | None, said: str | None) -> None:
        """`said`: the media type that its sender gave it."""
        self.size = 0
        self._name = _file_name(name)
        self._media_type = media_types.resolved(said, self._name)
        self._digest = hashlib.sha256()
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - closed by its owner

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def write(self, piece: bytes | bytearray) -> None:
        self.size += len(piece)
        self._digest.update(piece)
        self._file.write(piece)

    async def content(self) -> AsyncIterator[bytes]:
        """From its beginning."""
        self._file.seek(0)
        while piece := self._file.read(_PIECE):
            yield piece

    def close(self) -> None:
        self._file.close()

    def part(self) -> FilePart:
        """What the input says of it. Raises Refused for what no agent is given."""
        if self._media_type is None:
            raise Refused(400, "Unsupported file type")
        if not self.size:
            raise Refused(400, "Empty file")
        return FilePart(self.sha256, self._media_type, self._name, self.size)


class Posted:
    """The form and its files so far. Closes them at the end of its block."""

    def __init__(self, limits: UploadLimits) -> None:
        self.form = Form({})
        self.files: list[Upload] = []
        self._limits = limits
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Posted":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def read(self, request: HttpRequest) -> None:
        """All of the request's body. Raises Refused: 413 for what is over a limit, 400 for what is no form."""
        kind, options = request.content_type
        if kind == "application/x-www-form-urlencoded":
            said = parse_qsl((await self._whole(request)).decode("utf-8", "replace"), True, errors="replace")
            self.form = Form(dict(said))
        elif kind == "multipart/form-data" and "boundary" in options:
            await self._read_parts(request, options["boundary"])

    def parts(self) -> list[FilePart]:
        """What the input says of the files. Raises Refused for what no agent is given."""
        return [upload.part() for upload in self.files]

    def add(self, name: str | None, said: str | None) -> Upload:
        """One more file."""
        if len(self.files) >= self._limits.files:
            raise Refused(413, f"At most {self._limits.files} files")
        upload = Upload(name, said)
        self._stack.callback(upload.close)
        self.files.append(upload)
        return upload

    def write(self, upload: Upload, piece: bytes | bytearray) -> None:
        """The next bytes of a file. Raises Refused."""
        if upload.size + len(piece) > self._limits.file:
            raise Refused(413, f"A file has more than {self._limits.file} bytes")
        if sum(one.size for one in self.files) + len(piece) > self._limits.total:
            raise Refused(413, f"The files have more than {self._limits.total} bytes together")
        upload.write(piece)

    async def _whole(self, request: HttpRequest) -> bytes:
        most, body = self._limits.text + self._limits.encoded, bytearray()
        async with aclosing(request.stream()) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) > most:
                    raise Refused(413, "Content Too Large")
        return bytes(body)

    async def _read_parts(self, request: HttpRequest, boundary: str) -> None:
        parts = _Parts(self, self._limits.text + self._limits.encoded)
        try:
            with PushMultipartParser(boundary.encode(), max_segment_count=_MOST_PARTS) as parser:
                async with aclosing(request.stream()) as pieces:
                    async for piece in pieces:
                        if not parser.closed:
                            for said in parser.parse(piece):
                                parts.take(said)
        except ParserLimitReached as error:
            raise Refused(413, "Content Too Large") from error
        except (ParserError, UnicodeError) as error:
            raise Refused(400, "There was an error parsing the body") from error
        self.form = Form(parts.texts)


class _Parts:
    """The parts of a multipart body, in the parser's pieces: a header, content, None at the end of each."""

    def __init__(self, posted: Posted, most: int) -> None:
        self.texts: dict[str, str] = {}
        self._posted = posted
        self._most = most
        self._texts_size = 0
        self._segment: MultipartSegment | None = None
        self._upload: Upload | None = None
        self._text = bytearray()

    def take(self, said: MultipartSegment | bytearray | None) -> None:
        if isinstance(said, MultipartSegment):
            self._segment, self._upload, self._text = said, None, bytearray()
            if said.filename and said.name == "files":
                self._upload = self._posted.add(said.filename, said.content_type)
        elif said:
            self._content(said)
        elif self._segment is not None:
            if not self._segment.filename:
                self.texts[self._segment.name or ""] = self._text.decode("utf-8", "replace")
            self._segment = self._upload = None

    def _content(self, piece: bytearray) -> None:
        if self._upload is not None:
            self._posted.write(self._upload, piece)
        elif self._segment is not None and not self._segment.filename:
            self._texts_size += len(piece)
            if self._texts_size > self._most:
                raise Refused(413, "Content Too Large")
            self._text += piece


def _file_name(said: Any) -> str | None:
    """The last part of a sender's path, without what cannot be shown."""
    if not isinstance(said, str):
        return None
    last = said.replace("\\", "/").rpartition("/")[2]
    shown = "".join(c for c in last if c.isprintable()).strip()
    if len(shown) > _MAX_NAME:
        stem, dot, ending = shown.rpartition(".")
        shown = stem[: _MAX_NAME - 1 - len(ending)] + dot + ending if dot and len(ending) < 20 else shown[:_MAX_NAME]
    return shown or None
