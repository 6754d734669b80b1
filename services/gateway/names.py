"""Names that callers choose: external ids and idempotency keys."""

from domain.errors import Invalid

MAX_CHARACTERS = 255
_FORBIDDEN = frozenset("/\\?#")


class BadIdempotencyKey(Invalid):
    """Refused before anything else is looked at."""

    code = "bad_idempotency_key"
    sentence = "An Idempotency-Key has 1 to 255 printable ASCII characters."


def external_id_fault(name: str) -> str | None:
    """What is wrong with an external id, or None. It stands in paths, so it must survive every proxy: 1 to 255
    printable characters without / \\ ? #, and neither of the two that paths resolve away."""
    if not 1 <= len(name) <= MAX_CHARACTERS:
        return f"must have 1 to {MAX_CHARACTERS} characters"
    if not name.isprintable():
        return "must consist of printable characters"
    if _FORBIDDEN.intersection(name):
        return "must not contain / \\ ? #"
    if name in (".", ".."):
        return "must not be . or .."
    return None


def idempotency_key(header: str) -> str:
    """The header's value. Raises BadIdempotencyKey."""
    if not (1 <= len(header) <= MAX_CHARACTERS and header.isascii() and header.isprintable()):
        raise BadIdempotencyKey(pointer="/headers/Idempotency-Key")
    return header
