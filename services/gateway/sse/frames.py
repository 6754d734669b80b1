"""Every byte of a stream that is not a replayed page: SSE blocks of events, temporary frames and the stream's own
frames.

A block ends with an empty line; `id:` stands on committed events and on `stream.open` / `stream.resync` only, so
nothing else can move a client's cursor. JSON text has no raw line breaks, so one `data:` line is enough (`event`
refuses others)."""

import random
from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

ClosingReason = Literal["slow_consumer", "draining", "overloaded", "expired", "revoked", "closed"]

COMMENT = b": keepalive\n\n"

_encode = msgspec.json.Encoder().encode


class Block(NamedTuple):
    """One committed event as it stands in a replay page."""

    sequence: int
    type: str
    envelope: bytes
    bytes: bytes


def one_line(data: bytes) -> bool:
    """Whether JSON can stand in one `data:` line: ours always can, what somebody else published perhaps not."""
    return b"\n" not in data and b"\r" not in data


def event(sequence: int, type_: str, envelope: bytes) -> bytes:
    """A committed event. The caller made sure of `one_line`."""
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (sequence, type_.encode(), envelope)


def live(type_: str, frame: bytes) -> bytes:
    """A temporary frame: no id."""
    return b"event: %b\ndata: %b\n\n" % (type_.encode(), frame)


def opening(
    *,
    retry: int,
    session_id: str,
    epoch: int,
    after: int,
    last_sequence: int,
    chat_status: str,
    active_turn_id: str | None,
) -> bytes:
    """`stream.open`: the first frame of every connection; its id is the cursor, so that a client that is cut right away
    comes back with it."""
    data = {"session_id": session_id, "epoch": epoch, "after": after, "last_sequence": last_sequence}
    state = {"chat_status": chat_status, "active_turn_id": active_turn_id}
    return b"retry: %d\nid: %d\nevent: stream.open\ndata: %b\n\n" % (retry, after, _encode({**data, **state}))


def resync(reason: str, last_sequence: int) -> bytes:
    """The client's cursor cannot be served; its true place is `last_sequence`, and the stream goes on from there."""
    data = _encode({"reason": reason, "last_sequence": last_sequence})
    return b"id: %d\nevent: stream.resync\ndata: %b\n\n" % (last_sequence, data)


def closing(reason: ClosingReason, retry: int | None = None) -> bytes:
    """The last frame of a stream that the server ends. No id: the client's cursor stays."""
    head = b"retry: %d\n" % retry if retry is not None else b""
    return head + b"event: stream.closing\ndata: %b\n\n" % _encode({"reason": reason})


def jittered(bounds: tuple[int, int]) -> int:
    """Milliseconds for `retry:`."""
    return random.randint(*bounds)


def blocks(body: bytes) -> Iterator[Block]:
    """The events of a replay page. Raises ValueError where it is not what `event` writes."""
    for block in body.split(b"\n\n")[:-1]:
        identity, type_, data = block.split(b"\n", 2)
        if not (identity.startswith(b"id: ") and type_.startswith(b"event: ") and data.startswith(b"data: ")):
            raise ValueError("not a replay page")
        yield Block(int(identity[4:]), type_[7:].decode(), data[6:], block + b"\n\n")
