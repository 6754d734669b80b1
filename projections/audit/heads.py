"""The stream head of a session, as stored and as folded, and as it was signed earlier."""

from typing import Any

import msgspec

from domain.session import Head

HEAD_COLUMNS = (
    "last_sequence",
    "head_hash",
    "last_event_at",
    "agent_id",
    "component",
    "active_turn_id",
    "tip_turn_id",
    "fence",
    "queue_state",
    "next_enqueue_sequence",
    "queued_count",
    "closing",
    "created_at",
    "closed_at",
)

HeadRow = tuple[Any, ...]
"""A row of `sessions`: columns in the order of HEAD_COLUMNS, ids as text, times in microseconds."""

_FOLDED = 3
"""The columns from here on are those of the fold; the ones before it need only the events."""


class Anchored(msgspec.Struct, frozen=True):
    """A head that was signed earlier."""

    sequence: int
    hash: bytes


def head_difference(
    stored: HeadRow, head: Head | None, sequence: int, hashes: tuple[bytes, ...], last_event_at: int | None
) -> str:
    """Columns that differ, with both values (no user content is among them). `head` is None where the fold could not be
    trusted to the end: then only what the events themselves tell is compared. `hashes`: see Integrity."""
    due: list[Any] = [sequence, stored[1] if stored[1] in hashes else hashes[0], last_event_at]
    if head is not None:
        due += [getattr(head, name) for name in HEAD_COLUMNS[_FOLDED:]]
    return ", ".join(
        f"{name} is {_shown(a)} where {_shown(b)} is due"
        for name, a, b in zip(HEAD_COLUMNS, stored, due, strict=False)
        if a != b
    )


def _shown(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
