"""Replay pages as the bytes that viewers get: payloads are passed through, nothing is decoded."""

from collections.abc import Sequence as Many
from typing import Any, Literal

import msgspec

from domain.events.envelope import envelope
from domain.ids import Sequence

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
    sequence, event_id, type_, schema_version, turn_id, created_at, payload = row
    data = envelope(session_id, sequence, event_id, type_, schema_version, turn_id, created_at, payload)
    return data if form == "json" else b"id: %d\nevent: %s\ndata: %s\n\n" % (sequence, type_.encode(), data)


def fitting(blocks: Many[bytes], limit_bytes: int) -> int:
    """How many of them fit, at least one: a single event that is larger than the limit must not stop the cursor."""
    size = 0
    for count, piece in enumerate(blocks):
        size += len(piece)
        if size > limit_bytes and count:
            return count
    return len(blocks)
