"""A command on its way through the pipeline."""

import asyncio
import hashlib
from collections.abc import Iterable
from functools import cache

from domain import commands
from domain.commands import BeginTurn, Command, ExecutorCommand, fingerprint
from domain.ports import Outcome


class Member:
    """One command with its caller's future. Settled exactly once; a caller that has gone is not an error."""

    __slots__ = ("command", "deadline", "fingerprint", "future", "lock_deadline", "log_key")

    def __init__(self, command: Command, deadline: float, future: "asyncio.Future[Outcome]") -> None:
        self.command = command
        self.deadline = deadline
        self.future = future
        self.log_key = log_key(command)
        self.fingerprint = kept_fingerprint(command)
        self.lock_deadline = float("inf")

    @property
    def over(self) -> bool:
        return self.future.done()

    def settle(self, outcome: Outcome | Exception) -> None:
        if self.future.done():
            return
        if isinstance(outcome, Exception):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)

    def blocked(self, now: float, lock_timeout: float) -> None:
        """The session's lock was not to be had. An executor command goes on trying until its lease ends."""
        if self.lock_deadline == float("inf") and not isinstance(self.command, ExecutorCommand):
            self.lock_deadline = now + lock_timeout


def owners_of(members: Iterable[Member]) -> list[str]:
    """Whose quotas these commands count with, in the order in which their locks are taken."""
    named = {member.command.owner for member in members if isinstance(member.command, BeginTurn)}
    return sorted(owner for owner in named if owner is not None)


def log_key(command: Command) -> str | None:
    """Under which key `command_log` keeps the reply: a client's own key, or the turn of an executor command. A claim's
    is that of the turn it started, which only the loaded state tells (None here); a job's own for its end."""
    match command:
        case commands.ClaimTurn():
            return None
        case ExecutorCommand():
            return turn_key(command.turn_id)
        case commands.EndHook():
            return f"hook:{command.job_id}"
        case _:
            return f"key:{command.key}"


def turn_key(turn_id: str) -> str:
    """Key of a turn's executor row. Prefixes keep clients' keys and ours apart."""
    return f"turn:{turn_id}"


def kept_fingerprint(command: Command) -> bytes:
    """What a repeat must equal. Claims are repeated by key; executor commands by (turn, fence, ordinal) and type."""
    if isinstance(command, commands.ClaimTurn):
        return hashlib.sha256(f"claim_turn {command.key}".encode()).digest()
    if isinstance(command, ExecutorCommand):
        return _type_fingerprint(type(command).__name__)
    return fingerprint(command)


@cache
def _type_fingerprint(tag: str) -> bytes:
    return hashlib.sha256(tag.encode()).digest()
