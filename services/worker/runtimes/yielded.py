"""What a callable agent may yield: dataclasses take anything, and a value of another type than the documented one would
come into the log and could not be read again."""

from collections.abc import Mapping
from typing import Any

import turnlog
from domain.runtime import RuntimeFailed

_Types = tuple[type, ...]
_NONE = type(None)

_FIELDS: dict[type, dict[str, _Types]] = {
    turnlog.Reasoning: {"text": (str,)},
    turnlog.ToolCall: {"tool_call_id": (str,), "name": (str,), "arguments": (Mapping,), "idempotent": (bool,)},
    turnlog.ToolResult: {"tool_call_id": (str,), "final": (bool,), "is_error": (bool,)},
    turnlog.ToolProgress: {"tool_call_id": (str,), "text": (str, _NONE), "fraction": (float, int, _NONE)},
    turnlog.RuntimeEvent: {"name": (str,)},
    turnlog.Usage: {"model": (str,), "input_tokens": (int,), "output_tokens": (int,)},
}


def check(thing: Any) -> None:
    """Raises RuntimeFailed, which names the field, where a value has not the documented type."""
    for name, types in _FIELDS.get(type(thing), {}).items():
        value = getattr(thing, name)
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            expected = " or ".join("None" if one is _NONE else one.__name__ for one in types)
            raise RuntimeFailed(
                "agent_error", f"{type(thing).__name__}.{name} is a {type(value).__name__}, not a {expected}."
            )
