"""What is left of an event's payload after an erase: ids, numbers, statuses and times; nothing that somebody wrote.

Works on the JSON of any version of any event. A text becomes empty, because its field may be required; free-form values
go as a whole, because even their numbers are content.
"""

from typing import Any

import msgspec

from domain.events.registry import EVENT_TYPES

KEPT_TEXTS = frozenset(
    {
        "agent_id",
        "at",
        "by",
        "by_turn_id",
        "code",
        "component",
        "context_version",
        "continues",
        "expires_at",
        "external_id",
        "hook",
        "id",
        "idempotency_key",
        "item_id",
        "item_ids",
        "job_id",
        "kind",
        "message_id",
        "model",
        "needs",
        "parent_run_id",
        "parent_turn_id",
        "reason",
        "regenerates",
        "run_id",
        "then",
        "tool_call_id",
        "turn_id",
    }
)
"""Fields whose text is an id, a status or a time."""

FREE_FORM = frozenset({"arguments", "fields", "metadata", "note", "payload", "result"})
"""Fields that hold whatever somebody put there; all of them are optional."""

_EMPTIED = frozenset({"input"})
"""Lists of what somebody handed in; required, so that they stay, empty."""


def skeleton(type_: str, payload: bytes) -> bytes:
    """The payload without content. Of a type that this release does not know, nothing is left but `{}`."""
    if type_ not in EVENT_TYPES:
        return b"{}"
    return msgspec.json.encode(_bare(msgspec.json.decode(payload), ""))


def _bare(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {
            key: [] if key in _EMPTIED else _bare(inner, key) for key, inner in value.items() if key not in FREE_FORM
        }
    if isinstance(value, list):
        return [_bare(inner, name) for inner in value]
    return value if not isinstance(value, str) or name in KEPT_TEXTS else ""
