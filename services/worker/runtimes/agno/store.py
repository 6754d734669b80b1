"""The store that an Agno component finds in place of its own: in memory, filled from the turn's private state, gone
with the execution."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from agno.db.in_memory import InMemoryDb
from agno.models.message import Message
from agno.run.agent import RunInput, RunOutput
from agno.run.base import RunStatus
from agno.run.team import TeamRunInput, TeamRunOutput
from agno.run.workflow import WorkflowRunOutput
from agno.session.agent import AgentSession
from agno.session.team import TeamSession
from agno.session.workflow import WorkflowSession

from domain.history import PastTurn
from domain.parts import input_text
from services.worker.runtimes.agno.journal import Journal, called, read

Kind = Literal["agent", "team", "workflow"]

OUTPUTS: dict[str, Any] = {"agent": RunOutput, "team": TeamRunOutput, "workflow": WorkflowRunOutput}
_SESSIONS: dict[str, Any] = {"agent": AgentSession, "team": TeamSession, "workflow": WorkflowSession}
_INPUTS: dict[str, Callable[[str], Any]] = {
    "agent": lambda text: RunInput(input_content=text),
    "team": lambda text: TeamRunInput(input_content=text),
    "workflow": str,
}
_CARRIED = ("session_data", "metadata", "summary")
"""Fields of a session that go on from turn to turn; what else it holds is made anew."""


class TurnStore(InMemoryDb):
    """One session. `rows` leaves out what came before the turn."""

    def __init__(self, session_id: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.id = "turnlog"
        self._session_id = session_id
        self._before: set[str] = set()

    def fill(self, session: dict[str, Any], past: Sequence[dict[str, Any]], own: Sequence[dict[str, Any]]) -> None:
        """Put in the session, the runs of earlier turns and those of this turn."""
        self._before = {run["run_id"] for run in past}
        self._sessions[self._session_id] = {**session, "runs": [*past, *own]}

    def rows(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The session without its runs, and the turn's runs."""
        held = self._sessions.get(self._session_id) or {}
        session = {key: value for key, value in held.items() if key != "runs" and value is not None}
        runs = [_bare(run) for run in held.get("runs") or [] if run.get("run_id") not in self._before]
        return session, runs

    def state(self) -> Any:
        """The newest session state."""
        held = self._sessions.get(self._session_id) or {}
        return (held.get("session_data") or {}).get("session_state")


def session_row(kind: Kind, component: Any, session_id: str, past: Sequence[Journal], now: int) -> dict[str, Any]:
    """The session as the parent chain left it."""
    row: dict[str, Any] = {
        "session_id": session_id,
        f"{kind}_id": component.id,
        "session_type": kind,
        "created_at": now,
        "updated_at": now,
    }
    for journal in past:
        if journal.stored is not None:
            row.update({key: journal.stored.session[key] for key in _CARRIED if key in journal.stored.session})
    return row


def past_journals(past: Sequence[PastTurn]) -> list[Journal]:
    """What the turns before left."""
    return [read(turn.messages) for turn in past]


def past_runs(
    kind: Kind, component: Any, session_id: str, past: Sequence[PastTurn], journals: Sequence[Journal]
) -> list[dict[str, Any]]:
    """A run for each turn of the past, and the runs of its members."""
    runs: list[dict[str, Any]] = []
    for turn, journal in zip(past, journals, strict=True):
        stored = [] if journal.stored is None else [dict(run) for run in journal.stored.runs]
        inner = [run for run in stored if run.get("run_id") != turn.turn_id]
        known = next((run for run in stored if run.get("run_id") == turn.turn_id), None)
        runs += [_own_run(kind, component, session_id, turn, journal, known), *inner]
    return runs


def _own_run(
    kind: Kind, component: Any, session_id: str, turn: PastTurn, journal: Journal, known: dict[str, Any] | None
) -> dict[str, Any]:
    text = input_text(turn.input)
    messages = [dict(message) for message in journal.transcript] or [Message(role="user", content=text).to_dict()]
    messages += [
        Message(role="tool", tool_call_id=call_id, content="The call was interrupted.", tool_call_error=True).to_dict()
        for call_id in called(messages)
    ]
    if known is None:
        known = new_run(kind, component, session_id, turn.turn_id, text).to_dict()
        said = [m.get("content") for m in messages if m.get("role") == "assistant" and m.get("content")]
        known["content"] = said[-1] if said else None
    # Agno leaves out of the history what was cancelled or failed; here it is part of what was said.
    known["status"] = RunStatus.completed.value
    if kind != "workflow":
        known["messages"] = messages
    return known


def new_run(kind: Kind, component: Any, session_id: str, run_id: str, text: str) -> Any:
    """A run with nothing in it but who it is of."""
    who = {f"{kind}_id": component.id, f"{kind}_name": component.name}
    return OUTPUTS[kind](run_id=run_id, session_id=session_id, input=_INPUTS[kind](text), **who)


def new_session(kind: Kind, component: Any, session_id: str) -> Any:
    """An empty session of that component."""
    return _SESSIONS[kind](session_id=session_id, **{f"{kind}_id": component.id})


def _bare(run: Any) -> dict[str, Any]:
    """Without what is told otherwise."""
    made = dict(run if isinstance(run, dict) else run.to_dict())
    for key in ("events", "run_index"):
        made.pop(key, None)
    return made
