"""Signed heads: a file that says, outside the database, how far each session went and with which hash.

Lines of JSON: a first one with `turnlog_anchor: 1` and when it was made; one `{session_id, sequence, hash}` a session;
a last one with a JWS (RFC 7515, alg Ed25519) whose payload holds the SHA-256 of all bytes before that line.
"""

import hashlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey

from domain.errors import TurnlogError

_ALGORITHMS = ["Ed25519"]


class AnchorUnusable(TurnlogError):
    """The file or the key cannot be read at all."""

    code = "anchor_unusable"
    sentence = "{path} cannot be used: {reason}."


class AnchorForged(TurnlogError):
    """The file is not what was signed, or not signed by this key."""

    code = "anchor_forged"
    sentence = "{path}: {reason}."


class SignedHead(msgspec.Struct, frozen=True):
    """How far one session went; `hash` in hex."""

    session_id: str
    sequence: int
    hash: str


class _First(msgspec.Struct, frozen=True):
    turnlog_anchor: int
    created_at: str


class _Last(msgspec.Struct, frozen=True):
    jws: str


class _Sealed(msgspec.Struct, frozen=True):
    sha256: str
    sessions: int


def load_key(path: Path, *, create: bool = False) -> OKPKey:
    """An Ed25519 key as a JWK file, private or (to check only) public. With `create` a fresh one is written, mode 0600,
    where there is none. Raises AnchorUnusable."""
    try:
        if create and not path.exists():
            key = OKPKey.generate_key("Ed25519")
            _write(path, msgspec.json.encode(key.as_dict(private=True)) + b"\n")
            return key
        return OKPKey.import_key(msgspec.json.decode(path.read_bytes(), type=dict[str, str | list[str]]))
    except (OSError, JoseError, ValueError) as error:
        raise AnchorUnusable(path=str(path), reason=f"it holds no Ed25519 key ({error})") from error


async def write_anchor(path: Path, created_at: str, heads: AsyncIterator[tuple[str, int, bytes]], key: OKPKey) -> int:
    """Write and sign (session id, sequence, hash) of all sessions; the file takes the place of the old one when it is
    whole. Returns the number of sessions."""
    fresh = path.with_name(path.name + ".new")
    digest = hashlib.sha256()
    count = 0
    with fresh.open("wb") as file:
        line = msgspec.json.encode(_First(1, created_at)) + b"\n"
        digest.update(line)
        file.write(line)
        async for session_id, sequence, hash_ in heads:
            line = msgspec.json.encode(SignedHead(session_id, sequence, hash_.hex())) + b"\n"
            digest.update(line)
            file.write(line)
            count += 1
        payload = msgspec.json.encode(_Sealed(digest.hexdigest(), count))
        signed = jws.serialize_compact({"alg": "Ed25519", "kid": key.thumbprint()}, payload, key, _ALGORITHMS)
        file.write(msgspec.json.encode(_Last(signed)) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    return count


def check_anchor(path: Path, key: OKPKey) -> int:
    """The number of sessions in the file, once it is known to be what was signed with that key. Raises AnchorForged,
    AnchorUnusable."""
    digest = hashlib.sha256()
    count = -1
    last = b""
    try:
        with path.open("rb") as file:
            for line in file:
                if last:
                    digest.update(last)
                    count += 1
                last = line
        sealed = jws.deserialize_compact(msgspec.json.decode(last, type=_Last).jws, key, _ALGORITHMS)
        told = msgspec.json.decode(sealed.payload, type=_Sealed)
    except OSError as error:
        raise AnchorUnusable(path=str(path), reason=str(error)) from error
    except (JoseError, ValueError) as error:
        raise AnchorForged(path=str(path), reason="its signature is not one by this key") from error
    if told != _Sealed(digest.hexdigest(), count):
        raise AnchorForged(path=str(path), reason="it was changed after it was signed")
    return count


def signed_heads(path: Path) -> Iterator[SignedHead]:
    """The heads in a file that `check_anchor` has found good, one at a time."""
    decode = msgspec.json.Decoder(SignedHead).decode
    with path.open("rb") as file:
        next(file)
        for line in file:
            if line.startswith(b'{"session_id":'):
                yield decode(line)


def _write(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
