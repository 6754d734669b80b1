"""`unpack_archives`: the files of a zip in its place, and nothing of one that cannot be trusted."""

import io
import struct
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.parts import TextPart
from services.worker.hooks.archives import Archive, BadArchive
from tests.support.shelf import BOUNDS, FILE_BYTES, Shelf
from turnlog import HookRun, Refused, unpack_archives


def zipped(files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return held.getvalue()


def told(shelf: Shelf, *parts: Any) -> HookRun:
    fields = {"session_id": "s", "turn_id": "t", "agent_id": "a", "hook": "h", "input": "look"}
    return HookRun(**fields, parts=[TextPart("look"), *parts], attachments=shelf)  # type: ignore[arg-type]


async def unpacked(*archives: bytes) -> Any:
    shelf = Shelf()
    return await unpack_archives(told(shelf, *(shelf.put(one, f"{n}.zip") for n, one in enumerate(archives))))


async def refused(*archives: bytes) -> str:
    """Why; and that nothing was stored."""
    shelf = Shelf()
    parts = [shelf.put(one, f"{n}.zip") for n, one in enumerate(archives)]
    before = set(shelf.kept)
    with pytest.raises(Refused) as error:
        await unpack_archives(told(shelf, *parts))
    assert set(shelf.kept) == before
    return str(error.value)


async def test_the_files_stand_in_the_place_of_their_archive() -> None:
    shelf = Shelf()
    held = zipped(
        {
            "notes/": b"",
            "notes/a.md": b"# a",
            "notes/b.unknown": b"b",
            "__MACOSX/notes/._a.md": b"junk",
            "notes/._b.md": b"junk",
            "notes/report.docx": b"PK\x03\x04 a document is an archive by its form",
            "ünï.txt": b"",
        }
    )
    before, after = shelf.put(b"x", "x.txt", "text/plain"), shelf.put(b"z", "z.png", "image/png")
    parts = await unpack_archives(told(shelf, before, shelf.put(held), after))
    assert [(part.name, part.media_type) for part in parts[1:]] == [
        ("x.txt", "text/plain"),
        ("notes/a.md", "text/markdown"),
        ("notes/b.unknown", None),
        ("notes/report.docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("ünï.txt", "text/plain"),
        ("z.png", "image/png"),
    ]
    assert parts[0] == TextPart("look")
    assert await shelf.read(parts[2]) == b"# a"
    # It leaves alone what it has unpacked itself, so that a fork may meet it again.
    assert await unpack_archives(told(shelf, *parts[1:])) is None


async def test_an_input_without_an_archive_stays_as_it_is() -> None:
    shelf = Shelf()
    assert await unpack_archives(told(shelf)) is None
    assert await unpack_archives(told(shelf, shelf.put(b"x", "a.txt", "text/plain"))) is None


def _encrypted() -> bytes:
    held = bytearray(zipped({"a.txt": b"x" * 100}))
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        held[held.index(signature) + place] |= 1
    return bytes(held)


def _link() -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        info = zipfile.ZipInfo("link")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    return held.getvalue()


def _twice(second: str) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr("a.txt", "one")
        archive.writestr(second, "two")
    return held.getvalue()


def _lying() -> bytes:
    """It says that its file has one byte."""
    held = bytearray(zipped({"a.txt": b"\0" * 90_000}))
    struct.pack_into("<I", held, held.index(b"PK\x03\x04") + 22, 1)
    struct.pack_into("<I", held, held.index(b"PK\x01\x02") + 24, 1)
    return bytes(held)


def _bent(at: int) -> bytes:
    held = bytearray(zipped({"a.txt": bytes(range(256)) * 8}))
    held[at] ^= 0xFF
    return bytes(held)


BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "no archive": (lambda: b"hello", "is damaged, or no zip archive"),
    "empty": (lambda: b"", "is damaged, or no zip archive"),
    "cut": (lambda: zipped({"a.txt": b"x" * 5000})[:-30], "is damaged, or no zip archive"),
    "a bit": (lambda: _bent(60), "is damaged, or no zip archive"),
    "encrypted": (_encrypted, "is encrypted"),
    "many": (lambda: zipped({f"{n}.txt": b"" for n in range(11)}), "has more than 10 files"),
    "very many": (lambda: zipped({f"__MACOSX/{n}": b"" for n in range(101)}), "has more than 10 files"),
    "bomb": (lambda: zipped({"a.txt": b"\0" * 49_000}), "unpacks to more than 100 times its size"),
    "large": (
        lambda: zipped({f"{n}.txt": b"x" * 40_000 for n in range(3)}, zipfile.ZIP_STORED),
        "has more than 100000 bytes when it is unpacked",
    ),
    "large file": (lambda: zipped({"a.txt": b"x" * 50_001}, zipfile.ZIP_STORED), "has a file of more than 50000 bytes"),
    "lying": (_lying, ""),
    "nested by name": (lambda: zipped({"a.txt": b"x", "b.zip": b"x"}), "has another archive in it"),
    "nested by content": (lambda: zipped({"b.txt": zipped({"c": b"x"})}), "has another archive in it"),
    "nested tar": (lambda: zipped({"b.TAR.GZ": b"x"}), "has another archive in it"),
    "up": (lambda: zipped({"../a.txt": b"x"}), "has a file whose name leads out of it"),
    "up in the middle": (lambda: zipped({"a/../../a.txt": b"x"}), "has a file whose name leads out of it"),
    "absolute": (lambda: zipped({"/etc/passwd": b"x"}), "has a file whose name leads out of it"),
    "drive": (lambda: zipped({"C:/a.txt": b"x"}), "has a file whose name leads out of it"),
    "backslash": (lambda: zipped({"..\\a.txt": b"x"}), "has a file whose name leads out of it"),
    "dot": (lambda: zipped({"./a.txt": b"x"}), "has a file whose name leads out of it"),
    "unprintable": (lambda: zipped({"a\x1b.txt": b"x"}), "has a file whose name cannot be shown"),
    "cut name": (
        lambda: zipped({"a.txt.exe": b"x"}).replace(b"a.txt.exe", b"a.txt\0exe"),
        "whose name cannot be shown",
    ),
    "long name": (lambda: zipped({"a" * 256: b"x"}), "has a file whose name cannot be shown"),
    "link": (_link, "has something in it that is no file"),
    "one name twice": (lambda: _twice("a.txt"), "has two files of one name"),
    "one name, other case": (lambda: _twice("A.TXT"), "has two files of one name"),
}


@pytest.mark.parametrize("kind", BAD)
async def test_what_cannot_be_trusted_is_refused_whole(kind: str) -> None:
    made, says = BAD[kind]
    content = made()
    assert says in await refused(content)
    assert (await refused(content)).startswith("The archive 0.zip ")
    # Beside a good one nothing of either is stored.
    assert (await refused(zipped({"good.txt": b"x"}), content)).startswith("The archive 1.zip ")


async def test_several_archives_hold_no_more_than_one_may() -> None:
    one = zipped({f"{n}.txt": b"x" for n in range(6)})
    assert await unpacked(one)
    assert await refused(one, zipped({f"{n}.md": b"x" for n in range(6)})) == "The archives hold too much together."


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_bent_bytes_are_unpacked_right_or_refused(data: st.DataObject) -> None:
    """No other error, no more than the bounds, and no file whose content is not what its check sum says."""
    files = {"a.txt": bytes(range(256)) * 4, "d/b.md": b"hello " * 50, "c.png": b"\x89PNG"}
    compression = data.draw(
        st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    )
    held = bytearray(zipped(files, compression))
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(held) - 1))
        held[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, 3))
    content = bytes(held[: len(held) - data.draw(st.integers(1, len(held)))]) if cut == 0 else bytes(held)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            archive = Archive(content, BOUNDS, FILE_BYTES)
        except BadArchive:
            return
        found = [archive.read(entry) for entry in archive.entries]
    assert sum(map(len, found)) == archive.unpacked_bytes <= BOUNDS.unpacked_bytes
    assert all(content in files.values() or content == b"" for content in found)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=12), st.binary(max_size=60), max_size=8))
def test_any_names_give_paths_that_lead_nowhere_else_or_a_refusal(files: dict[str, bytes]) -> None:
    try:
        content = zipped(files)
    except (UnicodeEncodeError, ValueError, IndexError):
        return  # the library does not write such
    try:
        entries = Archive(content, BOUNDS, FILE_BYTES).entries
    except BadArchive:
        return
    for entry in entries:
        steps = entry.name.split("/")
        assert all(step not in ("", ".", "..") and ":" not in steps[0] and "\\" not in step for step in steps)
        assert entry.name.isprintable()
    assert len({entry.name.casefold() for entry in entries}) == len(entries)
