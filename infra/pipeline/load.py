"""Reading what a group's decisions need: heads and claims, then turns, then earlier replies. Three plain reads at
most."""

from collections.abc import Sequence as Many
from typing import Any

from domain import commands
from domain.decisions import wanted
from domain.ids import Micros, SessionId, TurnId
from domain.session import SessionState
from domain.turn import Turn
from domain.turn_row import from_row
from infra.pipeline.batch import KeptReply, Loaded, Tally
from infra.pipeline.member import Member, owners_of, turn_key
from infra.postgres.rows import claim_of, head_of
from infra.postgres.sql import statements

_SQL = statements("pipeline")

# More than any queue can hold: "all that wait".
_ALL = 1_000_000


async def load(connection: Any, members: dict[SessionId, list[Member]], active_turns: int) -> dict[SessionId, Loaded]:
    """The sessions of a group whose locks this transaction holds, and what has not ended of the owners whose locks it
    holds. A session that does not exist has no head. `active_turns`: where an owner's quota ends."""
    found: dict[SessionId, Loaded] = {}
    tallies: dict[str, Tally] = {}
    asked = [(session_id, owner) for session_id, group in members.items() for owner in owners_of(group) or (None,)]
    for row in await connection.fetch(_SQL["load_heads"], [s for s, _ in asked], [o for _, o in asked]):
        session_id = row["session_id"]
        if row["owner"] is not None:
            tallies[row["owner"]] = Tally(row["open_turns"])
        if session_id in found:
            continue
        loaded = Loaded(
            state=SessionState(session_id=session_id, turns={}), replies={}, now=Micros(row["now"]), tallies=tallies
        )
        found[session_id] = loaded
        if row["known"]:
            loaded.state.head = head_of(row)
            loaded.state.claim = claim_of(row)
            loaded.last_event_at = Micros(row["last_event_at"])
    full = [owner for owner, tally in tallies.items() if tally.open >= active_turns]
    if full:
        for row in await connection.fetch(_SQL["forget_ended"], full):
            tallies[row["owner"]].open -= row["ended"]
    need = _Need()
    for session_id, group in members.items():
        if found[session_id].state.head is not None:
            need.add(session_id, group)
    if need.sessions:
        for row in await connection.fetch(_SQL["load_turns"], *need.arguments()):
            turn: Turn = from_row(row)
            found[row["session_id"]].state.turns[turn.turn_id] = turn
    keys = [pair for session_id, group in members.items() for pair in _log_keys(found[session_id], group)]
    if keys:
        for row in await connection.fetch(_SQL["load_replies"], [s for s, _ in keys], [k for _, k in keys]):
            kept = KeptReply(row["fingerprint"], row["fence"], row["ordinal"], row["reply"])
            found[row["session_id"]].replies[row["idempotency_key"]] = kept
    return found


class _Need:
    """Which turns of which sessions to read."""

    def __init__(self) -> None:
        self.sessions: list[SessionId] = []
        self.queued: list[int] = []
        self.by_id: list[tuple[SessionId, TurnId]] = []
        self.by_name: list[tuple[SessionId, str]] = []

    def add(self, session_id: SessionId, members: Many[Member]) -> None:
        queued = cancels = 0
        useful = False
        for member in members:
            command = member.command
            want = wanted(command)
            queued += _ALL if want.all_queued else want.queued
            # A cancel may take away one of the lowest that another command of the group counts on.
            cancels += isinstance(command, commands.CancelTurn)
            self.by_id += [(session_id, turn_id) for turn_id in want.turn_ids]
            self.by_name += [(session_id, name) for name in want.external_ids]
            useful = useful or _needs_turns(command)
        if useful:
            self.sessions.append(session_id)
            self.queued.append(min(queued + cancels, _ALL) if queued else 0)

    def arguments(self) -> tuple[list[Any], ...]:
        return (
            list(self.sessions),
            self.queued,
            [session_id for session_id, _ in self.by_id],
            [turn_id for _, turn_id in self.by_id],
            [session_id for session_id, _ in self.by_name],
            [name for _, name in self.by_name],
        )


def _needs_turns(command: commands.Command) -> bool:
    """False for what looks at the head only: most submits. Saves a read per group under load."""
    match command:
        case commands.SubmitTurn():
            return command.if_busy != "queue" or command.external_id is not None
        case commands.CreateSession() | commands.ResumeQueue():
            return False
        case _:
            return True


def _log_keys(loaded: Loaded, members: Many[Member]) -> set[tuple[SessionId, str]]:
    keys: set[tuple[SessionId, str]] = set()
    for member in members:
        if member.log_key is not None:
            keys.add((loaded.state.session_id, member.log_key))
        elif loaded.state.claim is not None:
            keys.add((loaded.state.session_id, turn_key(loaded.state.claim.turn_id)))
    return keys
