"""Replies of commands: what is kept in `command_log` and given again to a repeat, byte for byte."""

from typing import Any

import msgspec

from domain.events.turn import StartReason
from domain.parts import ForkSource


class Reply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`sequence`: of the event that says what was decided, or the head's where nothing was written."""

    sequence: int


class SessionReply(Reply, frozen=True, kw_only=True, omit_defaults=True):
    """For CreateSession and CloseSession."""

    agent_id: str
    closed: bool = False


class QueuedReply(Reply, frozen=True, kw_only=True):
    """For SubmitTurn, ForkTurn and RegenerateTurn."""

    turn_id: str
    status: str
    enqueue_sequence: int
    queue_state: str


class ForkedReply(QueuedReply, frozen=True, kw_only=True, omit_defaults=True):
    """For ForkTurn and RegenerateTurn. `snapped`: the place asked for lay between two places one can fork from, and the
    lower one was taken. Without `forked_from` the new turn's history is that of any new turn."""

    forked_from: ForkSource | None = None
    snapped: bool = False


class TurnReply(Reply, frozen=True, kw_only=True):
    """For commands on one turn: its status after the command."""

    turn_id: str
    status: str
    interrupt_requested: bool = False


class QueueReply(Reply, frozen=True, kw_only=True):
    """For ResumeQueue."""

    queue_state: str


class ClaimedTurn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A claim: what the executor needs to start. `input` is JSON of the parts the model gets, `metadata` what came with
    the input."""

    session_id: str
    agent_id: str
    turn_id: str
    fence: int
    attempt: int
    reason: StartReason
    frame_base: int
    started_sequence: int
    input: msgspec.Raw
    context_version: str | None = None
    metadata: dict[str, Any] | None = None
    parent_turn_id: str | None = None
    forked_from: ForkSource | None = None
    interrupt_requested: bool = False


class ClaimReply(Reply, frozen=True, kw_only=True, omit_defaults=True):
    """For ClaimTurn; no claim where the dead one only had to be sealed."""

    claim: ClaimedTurn | None = None


class ExecutorReply(Reply, frozen=True, kw_only=True, omit_defaults=True):
    """For executor commands. `interrupt_requested`: stop at the next chance. `next`: claimed by `claim_next`.
    `queue_waits`: something may start that was not claimed here; send a wake hint."""

    interrupt_requested: bool = False
    status: str = "running"
    next: ClaimedTurn | None = None
    queue_waits: bool = False
