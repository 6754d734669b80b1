"""What users declare of their tools and steps with `turnlog.idempotent`, and what is known of Agno's own."""

from typing import Any

from turnlog import IDEMPOTENT

_OWN = ("agno.agent.", "agno.team.")
"""Tools that Agno itself gives to agents and teams: reading a history, delegating to a member. What a member does is
recorded on its own."""


def is_idempotent(found: Any) -> bool:
    """Of a function, an Agno `Function`, an agent or a step. Decorators in between do not matter."""
    seen: set[int] = set()
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        if getattr(found, IDEMPOTENT, False) is True:
            return True
        if str(getattr(found, "__module__", "")).startswith(_OWN) and callable(found) and not isinstance(found, type):
            return hasattr(found, "__code__") or hasattr(found, "__wrapped__")
        found = (
            getattr(found, "entrypoint", None)
            or getattr(found, "__wrapped__", None)
            or getattr(found, "raw_function", None)
            or getattr(found, "__func__", None)
        )
    return False
