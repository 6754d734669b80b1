"""Values from users' code made into JSON that the store can keep."""

from typing import Any

import msgspec

from domain.runtime import RuntimeFailed
from domain.texts import made_safe


def plain(value: Any, what: str) -> Any:
    """The value as plain JSON data with safe text. Raises RuntimeFailed where it has no JSON form; `what` names it."""
    try:
        return _safe(msgspec.to_builtins(value, str_keys=True))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise RuntimeFailed("agent_error", f"{what} cannot be stored as JSON ({type(error).__name__})") from error


def _safe(value: Any) -> Any:
    if isinstance(value, str):
        return made_safe(value)
    if isinstance(value, dict):
        return {made_safe(str(key)): _safe(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_safe(inner) for inner in value]
    return value


def encoded_size(value: Any) -> int:
    """Bytes of the value's JSON."""
    return len(msgspec.json.encode(value))
