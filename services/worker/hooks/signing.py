"""Signatures of webhooks: HMAC-SHA256 over `timestamp.body`."""

import hmac
import time

VERSION = "v1="


def sign(secret: str, body: bytes, timestamp: str) -> str:
    """What the header `Turnlog-Signature` says."""
    return VERSION + hmac.new(secret.encode(), timestamp.encode() + b"." + body, "sha256").hexdigest()


def verify_webhook(
    secret: str, body: bytes, timestamp: str, signature: str, *, now: float | None = None, tolerance: float = 300.0
) -> bool:
    """Whether a webhook's body is ours: the signature fits (compared in constant time) and the timestamp (seconds since
    1970) is not further from `now` than `tolerance`, so that nobody plays an old one again. The two texts are the
    headers `Turnlog-Timestamp` and `Turnlog-Signature`."""
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 20):
        return False
    fits = hmac.compare_digest(sign(secret, body, timestamp).encode(), signature.encode("utf-8", "replace"))
    return fits and abs((time.time() if now is None else now) - int(timestamp)) <= tolerance
