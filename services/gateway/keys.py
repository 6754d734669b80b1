"""The keys that users' tokens are signed with: one shared secret, a JWKS file of public keys, or both.

A key is used only for the algorithm it is meant for: HS256 with the secret, RS256 and ES256 with the file's RSA and EC
keys. So a public key can never be taken for a shared secret, and `none` is nothing.
"""

import json
from collections.abc import Callable
from pathlib import Path

import structlog
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OctKey, RSAKey

log = structlog.get_logger("turnlog.gateway")

AnyKey = OctKey | RSAKey | ECKey

_KINDS: dict[str, type[RSAKey] | type[ECKey]] = {"RSA": RSAKey, "EC": ECKey}
_ALGORITHM = {"RSA": "RS256", "EC": "ES256"}
_LOOK_SECONDS = 1.0
_MIN_RSA_BITS = 2048
# A token that names no key is tried with each: nobody has more who means it.
_MOST_KEYS = 64
_MOST_BYTES = 1024 * 1024


class JwksFile:
    """Public keys of a file that somebody else keeps. It is looked at once a second at most and read when it has
    changed; a file that is gone or broken leaves the keys there were, with one line in the log."""

    def __init__(self, path: Path, monotonic: Callable[[], float]) -> None:
        """Raises OSError, ValueError where it cannot be read now."""
        self._path = path
        self._monotonic = monotonic
        self._stamp = _stamp(path)
        self._keys = read_jwks(_read(path))
        self._looked = monotonic()

    def keys(self, algorithm: str, kid: str | None) -> list[AnyKey]:
        """Those that may have signed that, none for an algorithm they are not for."""
        self._look()
        return [key for meant, known, key in self._keys if meant == algorithm and kid in (None, known)]

    def _look(self) -> None:
        now = self._monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        try:
            stamp = _stamp(self._path)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._keys = read_jwks(_read(self._path))
        except (OSError, ValueError) as error:
            log.warning("jwks_not_read", error=type(error).__name__)
        else:
            log.info("jwks_read", keys=len(self._keys))


def read_jwks(content: bytes) -> list[tuple[str, str | None, AnyKey]]:
    """Algorithm, kid and key of each public key for signatures; others are left out. Raises ValueError where there is
    no such key."""
    try:
        said = json.loads(content)["keys"]
        found = [one for one in map(_key, said) if one is not None]
    except (KeyError, TypeError, AttributeError, JoseError) as error:
        raise ValueError("not a JWKS") from error
    if len(found) > _MOST_KEYS:
        raise ValueError(f"more than {_MOST_KEYS} keys")
    if not found:
        raise ValueError("no RSA or P-256 key for signatures")
    return found


def _key(said: dict[str, str]) -> tuple[str, str | None, AnyKey] | None:
    kind = said.get("kty", "")
    if kind not in _KINDS or said.get("use", "sig") != "sig":
        return None
    algorithm = _ALGORITHM[kind]
    if said.get("alg", algorithm) != algorithm or (kind == "EC" and said.get("crv") != "P-256"):
        return None
    # Of a private key that somebody put there by mistake only the public part is taken.
    public: dict[str, str | list[str]] = {
        name: said[name] for name in ("kty", "n", "e", "crv", "x", "y") if name in said
    }
    key = _KINDS[kind].import_key(public)
    if isinstance(key, RSAKey) and key.public_key.key_size < _MIN_RSA_BITS:
        return None
    return algorithm, said.get("kid"), key


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError("no JWKS: too large a file")
    return content


def _stamp(path: Path) -> tuple[int, int, int]:
    seen = path.stat()
    return seen.st_mtime_ns, seen.st_size, seen.st_ino
