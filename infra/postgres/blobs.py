"""Attachments, by the SHA-256 of their content: kept once, however often and by whomever they are handed in.

Which sessions name a blob is written by the append that names it. What nobody names is collected some time after it was
last handed in, so hand a file in shortly before the turn that names it.
"""

import hashlib
from collections.abc import Iterable

from infra.postgres.pool import Pool, fetch
from infra.postgres.sql import statements

_SQL = statements("blobs")
_CHUNK = 256 * 1024
# A large attachment on a slow disk.
_PATIENCE = 20.0
_AT_ONCE = 100


class PostgresBlobs:
    """All methods raise StoreUnavailable; each is one statement, and holds its connection no longer."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def keep(self, content: bytes, media_type: str | None = None) -> str:
        """Store it, whole or not at all; its name, in hexadecimal. Also a repeat counts as handed in now."""
        pieces = [content[start : start + _CHUNK] for start in range(0, len(content), _CHUNK)]
        kind = media_type or "application/octet-stream"
        (row,) = await fetch(self._pool, _SQL["keep"], kind, pieces, timeout=_PATIENCE)
        name: bytes = row["sha256"]
        return name.hex()

    async def known(self, names: Iterable[str]) -> set[str]:
        """Those of them that are stored; they count as handed in now."""
        rows = await fetch(self._pool, _SQL["known"], [bytes.fromhex(name) for name in names])
        return {row["sha256"].hex() for row in rows}

    async def size(self, name: str) -> int | None:
        """Its bytes; None where it is not stored."""
        rows = await fetch(self._pool, _SQL["size"], bytes.fromhex(name))
        return int(rows[0]["bytes"]) if rows else None

    async def get(self, name: str) -> bytes | None:
        """The whole content, in memory: ask for its size before. None where it is not stored, or not what its name
        says."""
        rows = await fetch(self._pool, _SQL["chunks"], bytes.fromhex(name), timeout=_PATIENCE)
        content = b"".join(row["content"] for row in rows)
        return content if hashlib.sha256(content).hexdigest() == name else None

    async def collect(self, seconds: float) -> int:
        """Remove what no session names and what was not handed in for so many seconds; how many were removed."""
        total = 0
        while True:
            (row,) = await fetch(self._pool, _SQL["collect"], seconds, _AT_ONCE, timeout=_PATIENCE)
            gone: int = row["gone"]
            total += gone
            if gone < _AT_ONCE:
                return total
