"""A turn as a row of the `turns` read model, and back: the one place that knows the columns.

session_id and generation come from the change, everything else is here. Structured values are JSON text; what is empty
is NULL.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from domain.ids import Generation, SessionId
from domain.parts import Failure, ForkSource, Requirement
from domain.progress import Progress
from domain.turn import Turn

_encode = msgspec.json.Encoder().encode
_failure = msgspec.json.Decoder(Failure).decode
_source = msgspec.json.Decoder(ForkSource).decode
_requirements = msgspec.json.Decoder(list[Requirement]).decode
_progress = msgspec.json.Decoder(Progress).decode
_usage = msgspec.json.Decoder(dict[str, Any]).decode

FIXED = (
    "turn_id",
    "enqueue_sequence",
    "input",
    "context_version",
    "idempotency_key",
    "external_id",
    "metadata",
    "forked_from",
    "regenerates",
    "queued_at",
    "first_sequence",
)
"""Columns that are written once, by `turn.queued`."""

CHANGING = (
    "status",
    "last_sequence",
    "attempt",
    "deaths",
    "released",
    "continued",
    "next_frame",
    "rewritten_input",
    "output",
    "error",
    "usage",
    "requirements",
    "superseded_by",
    "parent_turn_id",
    "interrupt_by",
    "interrupt_then",
    "checkpoint_sequence",
    "started_at",
    "finished_at",
    "progress",
    "leg_started_at",
    "expires_at",
)
"""Columns that later events change, all written together."""

_JSON = frozenset({"forked_from", "error", "usage", "requirements", "progress"})


_RAW = frozenset({"input", "metadata", "rewritten_input"})

_new_row = msgspec.defstruct(
    "NewTurnRow", [(name, Any, None) for name in ("session_id", "generation", *FIXED, *CHANGING)], omit_defaults=True
)
_changed_row = msgspec.defstruct(
    "ChangedTurnRow",
    [(name, Any, None) for name in ("session_id", "generation", "turn_id", *CHANGING)],
    omit_defaults=True,
)

Place = tuple[SessionId, Generation, Turn]
"""A turn with what makes it a row."""


def new_rows(places: list[Place]) -> bytes:
    """JSON array of objects with all columns; NULLs are left out, times are microseconds."""
    return _encode([_new_row(s, g, *_values(turn, FIXED), *_values(turn, CHANGING)) for s, g, turn in places])


def changed_rows(places: list[Place]) -> bytes:
    """The same with the key and the columns that change."""
    return _encode([_changed_row(s, g, turn.turn_id, *_values(turn, CHANGING)) for s, g, turn in places])


def _values(turn: Turn, names: tuple[str, ...]) -> list[Any]:
    found: list[Any] = []
    for name in names:
        value = getattr(turn, name)
        if name in _JSON:
            value = value or None
        elif value is not None and name in _RAW:
            value = msgspec.Raw(value)
        found.append(value)
    return found


def columns(turns: list[Turn], names: tuple[str, ...]) -> list[list[Any]]:
    """One list per named column, each with the column's value per turn, as it is read back."""
    found: list[list[Any]] = []
    for name in names:
        values = [getattr(turn, name) for turn in turns]
        found.append([_encode(v) if v else None for v in values] if name in _JSON else values)
    return found


def from_row(row: Mapping[str, Any]) -> Turn:
    """The turn in a row with all columns of FIXED and CHANGING. Inverse of `columns`."""
    forked_from, error, usage, requirements = row["forked_from"], row["error"], row["usage"], row["requirements"]
    progress = row["progress"]
    return Turn(
        turn_id=row["turn_id"],
        enqueue_sequence=row["enqueue_sequence"],
        input=row["input"],
        queued_at=row["queued_at"],
        first_sequence=row["first_sequence"],
        last_sequence=row["last_sequence"],
        status=row["status"],
        context_version=row["context_version"],
        idempotency_key=row["idempotency_key"],
        external_id=row["external_id"],
        metadata=row["metadata"],
        attempt=row["attempt"],
        deaths=row["deaths"],
        released=row["released"],
        continued=row["continued"],
        next_frame=row["next_frame"],
        rewritten_input=row["rewritten_input"],
        output=row["output"],
        error=None if error is None else _failure(error),
        usage=None if usage is None else _usage(usage),
        requirements=[] if requirements is None else _requirements(requirements),
        forked_from=None if forked_from is None else _source(forked_from),
        regenerates=row["regenerates"],
        superseded_by=row["superseded_by"],
        parent_turn_id=row["parent_turn_id"],
        interrupt_by=row["interrupt_by"],
        interrupt_then=row["interrupt_then"],
        checkpoint_sequence=row["checkpoint_sequence"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        progress=None if progress is None else _progress(progress),
        leg_started_at=row["leg_started_at"],
        expires_at=row["expires_at"],
    )
