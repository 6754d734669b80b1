"""The hash chain of a session: each event's hash covers the one before it and everything but the payload itself, of
which it covers a salted digest, so that an erase can remove text without breaking the chain."""

import hashlib
import struct

from domain.ids import Micros

_LENGTH = struct.Struct(">I")
_NUMBER = struct.Struct(">q")
_ABSENT = b"\xff\xff\xff\xff"


def digest(salt: bytes, content: bytes) -> bytes:
    """sha256(salt ‖ content): without the salt a guess at the content cannot be checked."""
    return hashlib.sha256(salt + content).digest()


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
        previous,
        session_id.encode(),
        _NUMBER.pack(sequence),
        event_id.encode(),
        type_.encode(),
        _NUMBER.pack(schema_version),
        None if turn_id is None else turn_id.encode(),
        _NUMBER.pack(created_at),
        payload_digest,
        private_digest,
        metadata,
    )
    return hashlib.sha256(
        b"".join(_ABSENT if field is None else _LENGTH.pack(len(field)) + field for field in fields)
    ).digest()
