"""Replay pages as the bytes that viewers get: payloads are passed through, nothing is decoded."""

from collections.abc import Sequence as Many
from typing import Any, Literal

import msgspec

from domain.events.envelope import envelope_head
from domain.ids import Micros, Sequence

WireForm = Literal["sse", "json"]


class WirePage(msgspec.Struct, frozen=True):
    """A run of events right after the asked cursor. Empty: first = last = cursor. `body`: SSE blocks, or the items of a
    JSON array joined by commas, without the brackets."""

    first: Sequence
    last: Sequence
    head: Sequence
    closed: bool
    body: bytes


def block(session_id: str, row: Any, form: WireForm) -> bytes:
    """One event, from a row of `wire_page`."""
    payload: bytes
    sequence, event_id, type_, schema_version, turn_id, created_at, payload, *_ = row
    head = envelope_head(session_id, sequence, event_id, type_, schema_version, turn_id, created_at)
    if b"\n" in payload or b"\r" in payload:
        # Written past the pipeline, which refuses it. Between tokens of JSON it means nothing, in a stream it would.
        payload = payload.replace(b"\n", b" ").replace(b"\r", b" ")
    if form == "json":
        return head.encode() + payload + b"}"
    return f"id: {sequence}\nevent: {type_}\ndata: {head}".encode() + payload + b"}\n\n"


_UUID = "0" * 36
_LINES = 4
"""Line breaks of a block."""

LEAST = len(envelope_head(_UUID, 1, _UUID, "a", 1, None, Micros(0)) + "}")
"""Bytes that either form adds to a payload, at least."""


def most(sequence: int) -> int:
    """Bytes that a block up to that sequence adds to its payload and to twice its type, at most."""
    row = (sequence, _UUID, "", 2**31 - 1, _UUID, Micros(0), b"")
    return len(block(_UUID, row, "sse"))


def whole_blocks(body: bytes, events: int) -> bool:
    """Whether these are so many blocks, none of which a line break of its own cuts in two."""
    return body.count(b"\n") == _LINES * events and b"\r" not in body


def fitting(blocks: Many[bytes], limit_bytes: int) -> int:
    """How many of them fit, at least one: a single event that is larger than the limit must not stop the cursor."""
    size = 0
    for count, piece in enumerate(blocks):
        size += len(piece)
        if size > limit_bytes and count:
            return count
    return len(blocks)
