"""Rows of `sessions`, `command_log` and `events` as domain values, and back."""

from collections.abc import Mapping
from typing import Any

from domain.events.envelope import StoredEvent
from domain.ids import Micros
from domain.session import Claim, Head


def head_of(row: Mapping[str, Any]) -> Head:
    """The stream head in a row of `sessions`."""
    return Head(
        session_id=row["session_id"],
        agent_id=row["agent_id"],
        component=row["component"],
        created_at=row["created_at"],
        last_sequence=row["last_sequence"],
        head_hash=row["head_hash"],
        active_turn_id=row["active_turn_id"],
        tip_turn_id=row["tip_turn_id"],
        fence=row["fence"],
        queue_state=row["queue_state"],
        next_enqueue_sequence=row["next_enqueue_sequence"],
        queued_count=row["queued_count"],
        closing=row["closing"],
        closed_at=row["closed_at"],
        turns_generation=row["turns_generation"],
        messages_generation=row["messages_generation"],
    )


def claim_of(row: Mapping[str, Any]) -> Claim | None:
    """The claim in a row of `load_heads`."""
    if row["claim_turn_id"] is None:
        return None
    return Claim(
        turn_id=row["claim_turn_id"],
        fence=row["claim_fence"],
        worker_id=row["claim_worker_id"],
        live=row["claim_live"],
        silent_seconds=row["claim_silent_seconds"],
    )


def head_columns(heads: list[tuple[Head, Micros]]) -> list[list[Any]]:
    """Arguments of `save_heads`; each head comes with the time of its last event."""
    only = [head for head, _ in heads]
    return [
        [h.session_id for h in only],
        [h.agent_id for h in only],
        [h.component for h in only],
        [h.last_sequence for h in only],
        [h.head_hash for h in only],
        [h.active_turn_id for h in only],
        [h.tip_turn_id for h in only],
        [h.fence for h in only],
        [h.queue_state for h in only],
        [h.next_enqueue_sequence for h in only],
        [h.queued_count for h in only],
        [h.closing for h in only],
        [h.turns_generation for h in only],
        [h.messages_generation for h in only],
        [h.created_at for h in only],
        [at for _, at in heads],
        [h.closed_at for h in only],
    ]


def event_columns(events: list[StoredEvent]) -> list[list[Any]]:
    """Arguments of `append`."""
    return [
        [e.session_id for e in events],
        [e.sequence for e in events],
        [e.event_id for e in events],
        [e.type for e in events],
        [e.schema_version for e in events],
        [e.turn_id for e in events],
        [e.payload for e in events],
        [e.private for e in events],
        [e.salt for e in events],
        [e.payload_digest for e in events],
        [e.private_digest for e in events],
        [e.metadata for e in events],
        [e.created_at for e in events],
        [e.hash for e in events],
    ]


def event_of(row: Mapping[str, Any]) -> StoredEvent:
    """A stored event from a row that names all columns of `events`."""
    return StoredEvent(
        row["session_id"],
        row["sequence"],
        row["event_id"],
        row["type"],
        row["schema_version"],
        row["turn_id"],
        row["created_at"],
        row["payload"],
        row["private"],
        row["salt"],
        row["payload_digest"],
        row["private_digest"],
        row["metadata"],
        row["hash"],
    )
