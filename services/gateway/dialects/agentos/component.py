"""What runs: an agent, a team or a workflow, and how its events and objects name it."""

from typing import Any, Literal

import msgspec

Kind = Literal["agent", "team", "workflow"]

KINDS: dict[str, Kind] = {"agents": "agent", "teams": "team", "workflows": "workflow"}
"""First step of a path -> kind."""

PREFIX: dict[str, str] = {"agent": "", "team": "Team", "workflow": "Workflow"}
"""Of the names of events that a run of the kind has."""


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the catalogue. `details` are public facts of its definition: model, tools, members, steps."""

    agent_id: str
    name: str
    component: Kind = "agent"
    details: dict[str, Any] | None = None

    @property
    def kind(self) -> Kind:
        return self.component

    @property
    def facts(self) -> dict[str, Any]:
        return self.details or {}

    @property
    def model(self) -> dict[str, Any]:
        """`id`, `name`, `provider`, as far as they are known."""
        model = self.facts.get("model")
        return model if isinstance(model, dict) else {}

    def names(self) -> dict[str, str]:
        """The two base fields that say what runs."""
        return {f"{self.kind}_id": self.agent_id, f"{self.kind}_name": self.name}

    def not_found(self) -> str:
        return NOT_FOUND[self.kind]


NOT_FOUND: dict[str, str] = {
    "agent": "Agent not found",
    "team": "Team not found",
    "workflow": "Workflow not found",
}
