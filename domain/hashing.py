"""The hash chain of a session: each event's hash covers the one before it and everything but the payload itself, of
which it covers a salted digest, so that an erase can remove text without breaking the chain."""

import hashlib
import struct

from domain.ids import Micros

_LENGTH = struct.Struct(">I")
_NUMBER = struct.Struct(">Iq")
_ABSENT = b"\xff\xff\xff\xff"


def digest(salt: bytes, content: bytes) -> bytes:
    """sha256(salt ‖ content): without the salt a guess at the content cannot be checked."""
    return hashlib.sha256(salt + content).digest()


def _field(content: bytes | None) -> bytes:
    return _ABSENT if content is None else _LENGTH.pack(len(content)) + content


def chain(
    previous: bytes,
    session_id: str,
    sequence: int,
    event_id: str,
    type_: str,
    schema_version: int,
    turn_id: str | None,
    created_at: Micros,
    payload_digest: bytes,
    private_digest: bytes | None,
    metadata: bytes,
) -> bytes:
    """Hash of one event. Every field is prefixed with its length in 4 bytes big-endian; an absent one is ffffffff.
    Numbers are 8 bytes big-endian, signed; ids are their text; `created_at` is microseconds since the epoch."""
    fields = (
        _field(previous),
        _field(session_id.encode()),
        _NUMBER.pack(8, sequence),
        _field(event_id.encode()),
        _field(type_.encode()),
        _NUMBER.pack(8, schema_version),
        _ABSENT if turn_id is None else _field(turn_id.encode()),
        _NUMBER.pack(8, created_at),
        _field(payload_digest),
        _field(private_digest),
        _field(metadata),
    )
    return hashlib.sha256(b"".join(fields)).digest()
