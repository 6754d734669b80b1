"""Zip archives that nobody vouches for: looked at as a whole before anything of them is used."""

import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator

import msgspec

from domain.runtime import ArchiveBounds
from domain.texts import unsafe

MEDIA_TYPES = frozenset({"application/zip", "application/x-zip-compressed"})
_ENDINGS = (".zip", ".jar", ".7z", ".rar", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst")
_MAGIC = (
    *(b"PK\x03\x04", b"PK\x05\x06", b"Rar!", b"7z\xbc\xaf\x27\x1c", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00"),
    b"\x28\xb5\x2f\xfd",
)
_OFFICE = (".docx", ".xlsx", ".pptx")
"""Archives by their form, documents to whoever reads them."""

_PIECE = 64 * 1024
_MAX_NAME = 255
# What the library raises on bytes that somebody has bent.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError, IndexError),
    *(OverflowError, struct.error, lzma.LZMAError, MemoryError, UnicodeError),
)


class BadArchive(Exception):
    """Why an archive is not unpacked, as a sentence for people."""


class Entry(msgspec.Struct, frozen=True):
    """A file of an archive."""

    name: str
    info: zipfile.ZipInfo


class Archive:
    """All of its files are known to be good and within the bounds. Memory: one file at a time, of `file_bytes` at
    most."""

    def __init__(self, content: bytes, bounds: ArchiveBounds, file_bytes: int) -> None:
        """Reads everything once. Raises BadArchive."""
        self._file_bytes = file_bytes
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(content))
            self.entries = self._listed(bounds)
            self.unpacked_bytes = 0
            for entry in self.entries:
                for piece in self._pieces(entry):
                    self.unpacked_bytes += len(piece)
                    if self.unpacked_bytes > bounds.unpacked_bytes:
                        raise BadArchive(f"has more than {bounds.unpacked_bytes} bytes when it is unpacked")
                    if self.unpacked_bytes > bounds.ratio * len(content):
                        raise BadArchive(f"unpacks to more than {bounds.ratio} times its size")
        except _DAMAGE as error:
            raise BadArchive("is damaged, or no zip archive") from error

    def read(self, entry: Entry) -> bytes:
        """The content of one file."""
        return b"".join(self._pieces(entry))

    def _listed(self, bounds: ArchiveBounds) -> list[Entry]:
        infos = self._zip.infolist()
        if len(infos) > 10 * bounds.entries:
            raise BadArchive(f"has more than {bounds.entries} files")
        entries = [
            Entry(_checked(info), info) for info in infos if not info.is_dir() and not _passed_over(info.filename)
        ]
        if len(entries) > bounds.entries:
            raise BadArchive(f"has more than {bounds.entries} files")
        seen: set[str] = set()
        for entry in entries:
            # Where names differ in nothing but case, one file would stand in for the other on some systems.
            if entry.name.casefold() in seen:
                raise BadArchive("has two files of one name")
            seen.add(entry.name.casefold())
        return entries

    def _pieces(self, entry: Entry) -> Iterator[bytes]:
        """Of a file, its check sum compared at its end. What the archive says of sizes is not believed."""
        size, first = 0, b""
        with self._zip.open(entry.info) as file:
            while piece := file.read(_PIECE):
                first = first or piece[:8]
                size += len(piece)
                if size > self._file_bytes:
                    raise BadArchive(f"has a file of more than {self._file_bytes} bytes")
                yield piece
        if first.startswith(_MAGIC) and not entry.name.lower().endswith(_OFFICE):
            raise BadArchive("has another archive in it")


def _passed_over(name: str) -> bool:
    steps = name.replace("\\", "/").split("/")
    return "__MACOSX" in steps[:-1] or steps[-1].startswith("._")


def _checked(info: zipfile.ZipInfo) -> str:
    """The name as a path below nowhere in particular. Raises BadArchive."""
    if info.flag_bits & 0x1:
        raise BadArchive("is encrypted")
    # The library cuts `filename` at a zero.
    name = info.orig_filename
    steps = name.split("/")
    if unsafe(name) or not name.isprintable() or len(name) > _MAX_NAME:
        raise BadArchive("has a file whose name cannot be shown")
    if "\\" in name or ":" in steps[0] or name.startswith("/") or any(step in ("", ".", "..") for step in steps):
        raise BadArchive("has a file whose name leads out of it")
    mode = info.external_attr >> 16
    if mode & 0o170000 not in (0, 0o100000):
        raise BadArchive("has something in it that is no file")
    if name.lower().endswith(_ENDINGS):
        raise BadArchive("has another archive in it")
    return name
