"""The hash chain of a session: each event's hash covers the one before it and everything but the payload itself, of
which it covers a salted digest, so that an erase can remove text without breaking the chain."""

import hashlib
import struct
from functools import lru_cache

from domain.ids import Micros

_LENGTH = struct.Struct(">I")
_NUMBER = struct.Struct(">Iq")
_ABSENT = b"\xff\xff\xff\xff"


def digest(salt: bytes, content: bytes) -> bytes:
    """sha256(salt ‖ content): without the salt a guess at the content cannot be checked."""
    return hashlib.sha256(salt + content).digest()


def _field(content: bytes) -> bytes:
    return _LENGTH.pack(len(content)) + content


@lru_cache(maxsize=4096)
def _repeated(text: str) -> bytes:
    """Of what neighbouring events share: session, turn, type."""
    return _field(text.encode())


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
    event = event_id.encode()
    fields = (
        _LENGTH.pack(len(previous)),
        previous,
        _repeated(session_id),
        _NUMBER.pack(8, sequence),
        _LENGTH.pack(len(event)),
        event,
        _repeated(type_),
        _NUMBER.pack(8, schema_version),
        _ABSENT if turn_id is None else _repeated(turn_id),
        _NUMBER.pack(8, created_at),
        _LENGTH.pack(len(payload_digest)),
        payload_digest,
        _ABSENT if private_digest is None else _field(private_digest),
        _LENGTH.pack(len(metadata)),
        metadata,
    )
    return hashlib.sha256(b"".join(fields)).digest()
