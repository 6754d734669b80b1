"""Posted forms with files, however they are cut and whatever is in them: read right, or refused."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.dialects.agentos.answers import Refused
from services.gateway.dialects.agentos.posted import Posted, UploadLimits

LIMITS = UploadLimits(files=3, file=2000, total=3000, text=500, encoded=500)
PNG = b"\x89PNG\r\n--b\r\n" * 20


def request(body: bytes, boundary: str | None = "b", piece: int = 1 << 20, kind: str = "multipart/form-data") -> Any:
    async def stream() -> AsyncIterator[bytes]:
        for start in range(0, len(body), piece):
            yield body[start : start + piece]

    options = {} if boundary is None else {"boundary": boundary}
    return SimpleNamespace(content_type=(kind, options), stream=stream)


def part(name: str, content: bytes, filename: str | None = None, kind: str | None = None) -> bytes:
    head = f'Content-Disposition: form-data; name="{name}"' + (f'; filename="{filename}"' if filename else "")
    typed = f"\r\nContent-Type: {kind}" if kind else ""
    return f"--b\r\n{head}{typed}\r\n\r\n".encode() + content + b"\r\n"


async def read(asked: Any) -> tuple[dict[str, Any], list[tuple[Any, bytes]]]:
    async with Posted(LIMITS) as posted:
        await posted.read(asked)
        files = [(one.part(), b"".join([piece async for piece in one.content()])) for one in posted.files]
        return posted.form.rest(()), files


@pytest.mark.parametrize("piece", [1, 7, 64, 100_000])
async def test_a_form_is_the_same_in_any_pieces(piece: int) -> None:
    picture = PNG.replace(b"\r\n--b", b"\r\n-b")
    body = part("message", "ünï".encode()) + part("files", picture, "C:\\x\\a.png", "image/png")
    body += part("other", b"not taken", "b.txt", "text/plain") + part("files", b"two", "b.md") + b"--b--\r\n"
    texts, files = await read(request(body, piece=piece))
    assert texts == {"message": "ünï"}
    assert [(one.name, one.media_type, content) for one, content in files] == [
        ("a.png", "image/png", picture),
        ("b.md", "text/markdown", b"two"),
    ]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a.txt", "a.txt"),
        ("../../etc/a.txt", "a.txt"),
        ("a\x00\x1b.txt", "a.txt"),
        ("x" * 300 + ".txt", "x" * 251 + ".txt"),
        ("." + "y" * 300, "." + "y" * 254),
        ("dir/", None),
    ],
)
async def test_names_of_files_are_shown_whole_and_short(name: str, shown: str | None) -> None:
    async with Posted(LIMITS) as posted:
        upload = posted.add(name, "text/plain")
        posted.write(upload, b"x")
        assert upload.part().name == shown


async def test_a_form_without_files_is_bounded_too() -> None:
    kind = "application/x-www-form-urlencoded"
    texts, _ = await read(request(b"message=a+b&x=%C3%BC", None, kind=kind))
    assert texts == {"message": "a b", "x": "ü"}
    for body, sort in ((b"message=" + b"x" * 1000, kind), (part("m", b"x" * 1001) + b"--b--", "multipart/form-data")):
        with pytest.raises(Refused) as error:
            await read(request(body, kind=sort))
        assert error.value.status == 413
    assert await read(request(b"{}", None, kind="application/json")) == ({}, [])


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                [b"--b\r\n", b"--b--", b"\r\n", b"\r\n\r\n", b"--", b"Content-Type: text/plain; charset=no\r\n"]
            ),
            st.just(part("files", b"x", "a.txt")[:-2]),
            st.just(part("m", b"x")),
            st.binary(max_size=30),
        ),
        max_size=12,
    ),
    st.sampled_from(["b", "", "b" * 200, "ü", "b b", '"']),
    st.integers(1, 40),
)
async def test_anything_else_is_refused(pieces: list[bytes], boundary: str, piece: int) -> None:
    try:
        await read(request(b"".join(pieces), boundary, piece))
    except Refused as error:
        refused = error.status
    else:
        refused = 400
    assert refused in (400, 413, 422)
