"""Sessions as AgentOS shows them, made of registrations, turns and runs."""

from collections.abc import Iterable
from typing import Any

import msgspec

from domain.clock import parse_rfc3339
from domain.parts import Part, input_text
from infra.postgres.registrations import Registration
from services.gateway.dialects.agentos.component import Component
from services.gateway.dialects.agentos.finding import Finder, session_metadata, session_name, user_of
from services.gateway.dialects.agentos.messages import messages_of
from services.gateway.dialects.agentos.objects import iso
from services.gateway.dialects.agentos.run import Run

Object = dict[str, Any]


class TurnSummary(msgspec.Struct, frozen=True):
    """As much of a turn as a list of sessions shows."""

    queued_at: str
    input: list[Part] = []
    usage: dict[str, Any] | None = None
    finished_at: str | None = None


class _Page(msgspec.Struct, frozen=True):
    items: list[TurnSummary]
    next_cursor: str | None = None


_decode_page = msgspec.json.Decoder(_Page).decode


async def turn_summaries(finder: Finder, registration: Registration) -> list[TurnSummary]:
    """Of all turns of a session, oldest first."""
    found: list[TurnSummary] = []
    query = {"limit": "500"}
    while True:
        page = _decode_page(await finder.deps.agent.read(f"/sessions/{registration.session_id}/turns", query))
        found += page.items
        if page.next_cursor is None:
            return found[::-1]
        query = {"limit": "500", "cursor": page.next_cursor}


def metrics_of(turns: Iterable[TurnSummary]) -> Object:
    """Tokens of all runs together."""
    total = {"input_tokens": 0, "output_tokens": 0}
    for turn in turns:
        for name in total:
            total[name] += (turn.usage or {}).get(name, 0)
    return {**total, "total_tokens": sum(total.values())} if any(total.values()) else {}


def name_of(registration: Registration, turns: list[TurnSummary]) -> str:
    """What it is called, else its first user message."""
    if registration.title is not None:
        return registration.title
    return next((text for turn in turns if (text := input_text(turn.input))), "")


def updated_at(registration: Registration, turns: list[TurnSummary]) -> str:
    ended = [parse_rfc3339(turn.finished_at or turn.queued_at) for turn in turns[-1:]]
    return iso(max([registration.changed_at, *ended]))


def session_row(
    finder: Finder, registration: Registration, component: Component | None, turns: list[TurnSummary]
) -> Object:
    """One row of the list."""
    kind = "agent" if component is None else component.kind
    metrics = metrics_of(turns)
    shown: Object = {
        "session_id": session_name(registration),
        "session_name": name_of(registration, turns),
        "session_state": session_metadata(registration).get("session_state") or {},
        "created_at": iso(registration.created_at),
        "updated_at": updated_at(registration, turns),
        "session_type": kind,
        "user_id": user_of(registration, off=finder.deps.authenticator.off),
        f"{kind}_id": registration.agent_id,
        "metrics": metrics,
        "total_tokens": metrics.get("total_tokens"),
        "metadata": session_metadata(registration).get("metadata"),
    }
    return {name: value for name, value in shown.items() if value is not None}


def session_detail(
    finder: Finder, registration: Registration, component: Component, turns: list[TurnSummary], runs: list[Run]
) -> Object:
    """One session with what was said in it."""
    metrics, name, kind = metrics_of(turns), session_name(registration), component.kind
    states = [run.session_state for run in runs if run.session_state is not None]
    state = states[-1] if states else session_metadata(registration).get("session_state") or {}
    about: Object = {"name": component.name, f"{kind}_id": component.agent_id}
    if component.model:
        about["model"] = component.model
    shown: Object = {
        "user_id": user_of(registration, off=finder.deps.authenticator.off),
        "session_id": name,
        "session_name": name_of(registration, turns),
        "session_state": state,
        f"{kind}_id": registration.agent_id,
        f"{kind}_data": about if runs else None,
        "metadata": session_metadata(registration).get("metadata"),
        "created_at": iso(registration.created_at),
        "updated_at": updated_at(registration, turns),
    }
    if kind == "workflow":
        shown["session_data"] = {"session_state": state, "session_metrics": metrics}
    else:
        shown |= {"metrics": metrics, "total_tokens": metrics.get("total_tokens")}
        shown["chat_history"] = [
            message for run in runs if run.superseded_by is None and run.started_at for message in messages_of(run)
        ]
    if kind == "agent":
        shown["agent_session_id"] = name
    return {key: value for key, value in shown.items() if value is not None}
