"""What the stream's encoder writes is what a reader by the WHATWG rules reads, however the bytes are cut."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from domain.errors import BadCursor
from domain.events.envelope import envelope, peek
from domain.ids import Micros
from services.gateway.sse import frames
from services.gateway.sse.cursor import cursor_of
from services.gateway.sse.ports import chunk_of
from tests.support.peers import frames_of
from tests.support.sse import SseParser

TYPES = st.from_regex(r"[a-z_]{1,12}\.[a-z_]{1,12}", fullmatch=True)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)
EVENTS = st.lists(st.tuples(TYPES, st.dictionaries(st.text(), JSON, max_size=4)), min_size=1, max_size=8)


def made(events: list[tuple[str, Any]], first: int) -> list[tuple[int, str, bytes]]:
    return [
        (sequence, type_, envelope("s", sequence, "e", type_, 1, "t", Micros(sequence), msgspec.json.encode(data)))
        for sequence, (type_, data) in enumerate(events, first)
    ]


@given(EVENTS, st.integers(1, 2**40), st.integers(1, 40))
def test_events_survive_any_cut_of_the_bytes(events: list[tuple[str, Any]], first: int, step: int) -> None:
    wire = b"".join(frames.event(*event) + frames.COMMENT for event in made(events, first))
    parser = SseParser()
    read = [frame for at in range(0, len(wire), step) for frame in parser.feed(wire[at : at + step])]
    assert [(int(frame.id or 0), frame.event, frame.data.encode()) for frame in read] == made(events, first)
    assert parser.comments == len(events)


@given(EVENTS, st.integers(1, 2**40))
def test_a_page_is_taken_apart_into_what_it_was_made_of(events: list[tuple[str, Any]], first: int) -> None:
    whole = made(events, first)
    body = b"".join(frames.event(*event) for event in whole)
    blocks = list(frames.blocks(body))
    assert [(block.sequence, block.type, block.envelope) for block in blocks] == whole
    assert b"".join(block.bytes for block in blocks) == body
    assert [peek(block.envelope).sequence for block in blocks] == [sequence for sequence, *_ in whole]


@given(EVENTS)
def test_chunks_may_be_joined(events: list[tuple[str, Any]]) -> None:
    coded = b"".join(chunk_of(frames.event(*event)) for event in made(events, 1))
    assert [int(frame.id or 0) for frame in frames_of(b"HTTP/1.1 200 OK\r\n\r\n" + coded)] == list(
        range(1, len(events) + 1)
    )


@given(st.binary())
def test_only_one_line_counts_as_one_line(data: bytes) -> None:
    assert frames.one_line(data) == (len(data.splitlines()) <= 1 and not data.endswith((b"\n", b"\r")))


@given(st.text(max_size=30), st.text(max_size=30) | st.none())
def test_a_cursor_is_a_decimal_sequence_or_refused(header: str, query: str | None) -> None:
    text = header or query or "0"
    try:
        cursor = cursor_of(header, query)
    except BadCursor:
        assert not (text.isascii() and text.isdecimal()) or len(text) > 18
    else:
        assert cursor == int(text) >= 0
