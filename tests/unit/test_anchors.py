"""Signed heads: what was signed cannot be changed unseen, and only the holder of the key signs."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from infra.anchors import AnchorForged, AnchorUnusable, check_anchor, load_key, signed_heads, write_anchor

HEADS = [("0198c0de-0000-7000-8000-000000000001", 7, bytes(32)), ("0198c0de-0000-7000-8000-000000000002", 9, b"1" * 32)]


async def heads() -> AsyncIterator[tuple[str, int, bytes]]:
    for head in HEADS:
        yield head


@pytest.fixture
async def anchor(tmp_path: Path) -> tuple[Path, Path]:
    key = load_key(tmp_path / "key", create=True)
    assert await write_anchor(tmp_path / "anchor", "2026-01-01T00:00:00.000000Z", heads(), key) == 2
    return tmp_path / "anchor", tmp_path / "key"


async def test_what_was_signed_is_read_back(anchor: tuple[Path, Path]) -> None:
    path, key = anchor
    assert check_anchor(path, load_key(key)) == 2
    assert [(head.session_id, head.sequence, bytes.fromhex(head.hash)) for head in signed_heads(path)] == HEADS
    assert key.stat().st_mode & 0o777 == 0o600


async def test_a_public_key_is_enough_to_check(anchor: tuple[Path, Path], tmp_path: Path) -> None:
    path, key = anchor
    public = tmp_path / "public"
    public.write_bytes(msgspec.json.encode(load_key(key).as_dict(private=False)))
    assert check_anchor(path, load_key(public)) == 2
    assert not load_key(public).is_private


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        (b'"sequence":7', b'"sequence":6'),
        (b'"hash":"00', b'"hash":"01'),
        (b'"jws":"ey', b'"jws":"eY'),
        (b'"jws"', b'"j"'),
    ],
)
async def test_a_changed_file_is_forged(anchor: tuple[Path, Path], was: bytes, becomes: bytes) -> None:
    path, key = anchor
    assert was in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(was, becomes))
    with pytest.raises(AnchorForged):
        check_anchor(path, load_key(key))


async def test_a_line_that_is_missing_or_doubled_is_forged(anchor: tuple[Path, Path]) -> None:
    path, key = anchor
    lines = path.read_bytes().splitlines(keepends=True)
    for changed in ([lines[0], *lines[2:]], [*lines[:2], *lines[1:]], lines[:-1], []):
        path.write_bytes(b"".join(changed))
        with pytest.raises(AnchorForged):
            check_anchor(path, load_key(key))


async def test_another_key_is_refused(anchor: tuple[Path, Path], tmp_path: Path) -> None:
    path, _ = anchor
    with pytest.raises(AnchorForged):
        check_anchor(path, load_key(tmp_path / "other", create=True))


def test_no_key_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(AnchorUnusable):
        load_key(tmp_path / "missing")
    (tmp_path / "rubbish").write_text("x")
    with pytest.raises(AnchorUnusable):
        load_key(tmp_path / "rubbish")
