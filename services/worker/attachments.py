"""Attachments as executions and hooks of a worker reach them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from domain.errors import Unavailable
from domain.parts import FilePart
from domain.runtime import ArchiveBounds, RuntimeFailed
from infra.postgres.blobs import PostgresBlobs

T = TypeVar("T")

_RETRY_SECONDS = 0.2


class StoredAttachments:
    """Implements `domain.runtime.Attachments`. One a worker: a few are loaded or stored at a time, whoever asks."""

    def __init__(self, blobs: PostgresBlobs, *, file_bytes: int, all_bytes: int, archive: ArchiveBounds) -> None:
        self.file_bytes = file_bytes
        self.all_bytes = all_bytes
        self.archive = archive
        self._blobs = blobs
        self._few = asyncio.Semaphore(2)

    async def read(self, part: FilePart) -> bytes:
        """See `Attachments`."""
        size = await self._until_there(lambda: self._blobs.size(part.blob))
        if size is not None and size > self.file_bytes:
            raise RuntimeFailed("too_large", f"The attachment has {size} bytes; {self.file_bytes} are allowed.")
        content = None if size is None else await self._until_there(lambda: self._blobs.get(part.blob))
        if content is None:
            raise RuntimeFailed("agent_error", "An attachment of the input is gone.")
        return content

    async def keep(self, content: bytes, *, name: str | None = None, media_type: str | None = None) -> FilePart:
        """See `Attachments`."""
        if len(content) > self.file_bytes:
            raise RuntimeFailed("too_large", f"A file has {len(content)} bytes; {self.file_bytes} are allowed.")
        blob = await self._until_there(lambda: self._blobs.keep(content, media_type))
        return FilePart(blob, media_type, name, len(content))

    async def _until_there(self, ask: Callable[[], Awaitable[T]]) -> T:
        async with self._few:
            while True:
                try:
                    return await ask()
                except Unavailable:
                    await asyncio.sleep(_RETRY_SECONDS)
