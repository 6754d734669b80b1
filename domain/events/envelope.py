"""A committed event and its wire form.

The payload goes through as the bytes that were hashed and stored: nothing between the append and the viewer decodes it.
"""

import msgspec

from domain.clock import rfc3339
from domain.events import registry
from domain.events.base import Event
from domain.ids import EventId, Micros, Sequence, SessionId, TurnId


class Draft(msgspec.Struct, frozen=True):
    """An event that is decided but has no sequence yet."""

    data: Event
    turn_id: TurnId | None = None
    private: bytes | None = None


class StoredEvent(msgspec.Struct, frozen=True):
    """A committed event as stored. `payload` is the exact JSON text (empty skeleton object after an erase), `private`
    never leaves the agent service, `metadata` is JSON without user content."""

    session_id: SessionId
    sequence: Sequence
    event_id: EventId
    type: str
    schema_version: int
    turn_id: TurnId | None
    created_at: Micros
    payload: bytes
    private: bytes | None
    salt: bytes | None
    payload_digest: bytes
    private_digest: bytes | None
    metadata: bytes
    hash: bytes

    def event(self) -> Event:
        """The decoded payload, upcast to the newest version."""
        return registry.decode(self.type, self.schema_version, self.payload)


def envelope_head(
    session_id: str,
    sequence: int,
    event_id: str,
    type_: str,
    schema_version: int,
    turn_id: str | None,
    created_at: Micros,
) -> str:
    """What comes before the payload; after it comes one closing brace."""
    turn = f',"turn_id":"{turn_id}"' if turn_id is not None else ""
    return (
        f'{{"session_id":"{session_id}","sequence":{sequence},"event_id":"{event_id}","type":"{type_}",'
        f'"schema_version":{schema_version}{turn},"created_at":"{rfc3339(created_at)}","data":'
    )


def envelope(
    session_id: str,
    sequence: int,
    event_id: str,
    type_: str,
    schema_version: int,
    turn_id: str | None,
    created_at: Micros,
    payload: bytes,
) -> bytes:
    """The envelope JSON of a committed event; field order is fixed and `sequence` comes second (see `peek`)."""
    head = envelope_head(session_id, sequence, event_id, type_, schema_version, turn_id, created_at)
    return head.encode() + payload + b"}"


def envelope_of(event: StoredEvent) -> bytes:
    """`envelope` of a stored event."""
    return envelope(
        event.session_id,
        event.sequence,
        event.event_id,
        event.type,
        event.schema_version,
        event.turn_id,
        event.created_at,
        event.payload,
    )


class Peeked(msgspec.Struct, frozen=True):
    """What a reader needs of an envelope to merge it; the rest stays bytes."""

    sequence: int
    type: str
    turn_id: str | None = None


_peek = msgspec.json.Decoder(Peeked)


def peek(data: bytes) -> Peeked:
    """Sequence, type and turn of an envelope. Raises msgspec.DecodeError or ValidationError on anything else."""
    return _peek.decode(data)
