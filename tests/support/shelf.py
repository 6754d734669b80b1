"""Attachments in memory."""

import hashlib

from domain.parts import FilePart
from domain.runtime import ArchiveBounds, RuntimeFailed

ZIP = "application/zip"
BOUNDS = ArchiveBounds(entries=10, unpacked_bytes=100_000, ratio=100)
FILE_BYTES = 50_000


class Shelf:
    """Attachments in memory, with what was kept by whom."""

    file_bytes, all_bytes, archive = FILE_BYTES, 10**6, BOUNDS

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.reads: list[str] = []

    def put(self, content: bytes, name: str = "a.zip", media_type: str | None = ZIP) -> FilePart:
        part = FilePart(hashlib.sha256(content).hexdigest(), media_type, name, len(content))
        self.kept[part.blob] = content
        return part

    async def read(self, part: FilePart) -> bytes:
        self.reads.append(part.blob)
        if part.blob not in self.kept:
            raise RuntimeFailed("agent_error", "An attachment of the input is gone.")
        return self.kept[part.blob]

    async def keep(self, content: bytes, *, name: str | None = None, media_type: str | None = None) -> FilePart:
        if len(content) > self.file_bytes:
            raise RuntimeFailed("too_large", "too large")
        return self.put(content, name or "", media_type)
