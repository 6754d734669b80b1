"""What a caller asked of one run beside its input, as arguments of Agno's `arun`."""

from typing import Any

from domain.runtime import Execution
from services.worker.runtimes.agno.store import Kind

_KNOWN = {
    "agent": ("session_state", "dependencies", "metadata", "knowledge_filters", "output_schema", "user_id"),
    "team": ("session_state", "dependencies", "metadata", "knowledge_filters", "output_schema", "user_id"),
    "workflow": ("session_state", "dependencies", "metadata", "user_id"),
}


def options(execution: Execution, kind: Kind) -> dict[str, Any]:
    """From the turn's metadata, where the AgentOS dialect puts them."""
    told = execution.metadata.get("agentos")
    if not isinstance(told, dict):
        return {}
    return {name: told[name] for name in _KNOWN[kind] if told.get(name) is not None}
