"""Rows of `sessions`, `command_log` and `events` as domain values, and back."""

from collections.abc import Mapping
from typing import Any

import msgspec

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


class HeadRow(msgspec.Struct, omit_defaults=True):
    """A row of `sessions` on its way in; bytes as hexadecimal, times in microseconds."""

    session_id: str
    agent_id: str
    component: str
    last_sequence: int
    head_hash: str
    fence: int
    queue_state: str
    next_enqueue_sequence: int
    queued_count: int
    closing: bool
    turns_generation: int
    messages_generation: int
    created_at: int
    last_event_at: int
    active_turn_id: str | None = None
    tip_turn_id: str | None = None
    closed_at: int | None = None


def head_row(head: Head, last_event_at: Micros) -> HeadRow:
    """The row of a head whose newest event has that time."""
    return HeadRow(
        head.session_id,
        head.agent_id,
        head.component,
        head.last_sequence,
        hexadecimal(head.head_hash),
        head.fence,
        head.queue_state,
        head.next_enqueue_sequence,
        head.queued_count,
        head.closing,
        head.turns_generation,
        head.messages_generation,
        head.created_at,
        last_event_at,
        head.active_turn_id,
        head.tip_turn_id,
        head.closed_at,
    )


class EventRow(msgspec.Struct, omit_defaults=True):
    """A row of `events` on its way in, but for payload and private part."""

    session_id: str
    sequence: int
    event_id: str
    type: str
    schema_version: int
    payload_digest: str
    metadata: msgspec.Raw
    created_at: int
    hash: str
    turn_id: str | None = None
    salt: str | None = None
    private_digest: str | None = None


def event_row(event: StoredEvent) -> EventRow:
    """The row of an event."""
    return EventRow(
        event.session_id,
        event.sequence,
        event.event_id,
        event.type,
        event.schema_version,
        hexadecimal(event.payload_digest),
        msgspec.Raw(event.metadata),
        event.created_at,
        hexadecimal(event.hash),
        event.turn_id,
        None if event.salt is None else hexadecimal(event.salt),
        None if event.private_digest is None else hexadecimal(event.private_digest),
    )


class ReplyRow(msgspec.Struct, omit_defaults=True):
    """A row of `command_log` on its way in, but for the reply."""

    session_id: str
    idempotency_key: str
    fingerprint: str
    fence: int | None = None
    ordinal: int | None = None


class ClaimRow(msgspec.Struct):
    """A row of `claims` on its way in."""

    session_id: str
    turn_id: str
    fence: int
    worker_id: str


class OpenTurnRow(msgspec.Struct):
    """A row of `open_turns` on its way in."""

    session_id: str
    turn_id: str
    owner: str


def hexadecimal(value: bytes) -> str:
    """The input form of bytea."""
    return "\\x" + value.hex()


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
