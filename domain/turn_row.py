"""A turn as a row of the `turns` read model, and back: the one place that knows the columns.

session_id and generation come from the change, everything else is here. Structured values are JSON text; what is empty
is NULL.
"""

from collections.abc import Mapping
from operator import attrgetter
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

Place = tuple[SessionId, Generation, Turn]
"""A turn with what makes it a row."""

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
_SPECIAL = _JSON | _RAW


class _Shape:
    """Makes JSON objects of turns: some columns as they are, fetched all at once, some to be wrapped or left out."""

    def __init__(self, name: str, columns: tuple[str, ...]) -> None:
        self._special = tuple(column for column in columns if column in _SPECIAL)
        plain = tuple(column for column in columns if column not in _SPECIAL)
        self._plain = attrgetter(*plain)
        fields = [(column, Any, None) for column in ("session_id", "generation", *plain, *self._special)]
        self._row = msgspec.defstruct(name, fields, omit_defaults=True)

    def rows(self, places: list[Place]) -> bytes:
        """JSON array of objects; NULLs are left out, times are microseconds."""
        return _encode([self._row(s, g, *self._plain(turn), *self._wrapped(turn)) for s, g, turn in places])

    def _wrapped(self, turn: Turn) -> list[Any]:
        values = [getattr(turn, name) or None for name in self._special]
        return [msgspec.Raw(value) if isinstance(value, bytes) else value for value in values]


new_rows = _Shape("NewTurnRow", FIXED + CHANGING).rows
"""Rows with all columns, for an insert."""

changed_rows = _Shape("ChangedTurnRow", ("turn_id", *CHANGING)).rows
"""Rows with their key and the columns that change, for an update."""


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
