"""Session tokens, tickets and cookies: shown once, stored as their SHA-256, compared in constant time.

`tls_` + session id in 32 hex digits + `_` + 32 random bytes in base64url: the id finds the row, the hash decides.
A slow hash would add nothing, since 256 random bits cannot be guessed.
"""

import hashlib
import hmac
import re
import secrets
import uuid

from domain.ids import SessionId

PREFIX = "tls_"
_TOKEN = re.compile(r"tls_([0-9a-f]{32})_[A-Za-z0-9_-]{43}")


def mint(session_id: SessionId) -> str:
    """A fresh token of that session."""
    return f"{PREFIX}{uuid.UUID(session_id).hex}_{secrets.token_urlsafe(32)}"


def mint_ticket() -> str:
    """A fresh ticket for one stream."""
    return f"tlt_{secrets.token_urlsafe(32)}"


def mint_cookie() -> str:
    """What stands in a ticket's place after it was used."""
    return f"tlc_{secrets.token_urlsafe(32)}"


def digest(token: str) -> bytes:
    """What is stored of it."""
    return hashlib.sha256(token.encode()).digest()


def session_of(token: str) -> SessionId | None:
    """The session that the token claims to open; None for what is no session token."""
    match = _TOKEN.fullmatch(token)
    return None if match is None else SessionId(str(uuid.UUID(match[1])))


def opens(token: str, stored: bytes | None) -> bool:
    """True when this token is the one whose digest is stored; takes as long when it is not."""
    return hmac.compare_digest(digest(token), stored or bytes(32)) and stored is not None
