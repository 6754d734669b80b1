"""Kept replies of commands against the log: a repeat of the command gets them, so they must say what happened.

Replies are untagged: its fields tell which one it is. A reply speaks of the moment of its `sequence`: the rows come in
that order and are compared right after the fold has taken that event.
"""

import msgspec

from domain.ids import TurnId
from domain.session import SessionState
from domain.turn import Turn
from projections.audit.findings import Findings


class ReplyRow(msgspec.Struct, frozen=True):
    """A row of `command_log`. `place`: the sequence its reply names (0 where it names none). `reply` is None after an
    erase."""

    place: int
    key: str
    fence: int | None
    reply: bytes | None


class _Claimed(msgspec.Struct, frozen=True):
    turn_id: str
    fence: int
    attempt: int
    started_sequence: int


class _AnyReply(msgspec.Struct, frozen=True):
    """All fields of all replies."""

    sequence: int
    agent_id: str | None = None
    closed: bool = False
    turn_id: str | None = None
    status: str | None = None
    enqueue_sequence: int | None = None
    queue_state: str | None = None
    interrupt_requested: bool = False
    claim: _Claimed | None = None
    next: _Claimed | None = None


_decode = msgspec.json.Decoder(_AnyReply).decode


class Replies:
    """Compares rows of `command_log`. `_answered`: turns whose acceptance has its reply, until they are over; `ended`
    are the statuses of turns that are over and that the fold has let go."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._answered: set[str] = set()
        self.ended: dict[str, str] = {}

    def compare(self, row: ReplyRow, state: SessionState) -> None:
        """A reply, right after the event it names."""
        if row.reply is None:
            return
        try:
            reply = _decode(row.reply)
        except msgspec.DecodeError:
            self._findings.add(row.place, "replies", f"the reply of {_shown(row.key)} is not a reply")
            return
        head = state.head
        if head is None or reply.sequence != head.last_sequence:
            self._findings.add(row.place, "replies", f"the reply of {_shown(row.key)} names no event of the session")
            return
        wrong = (
            self._of_executor(row, reply, state) if row.key.startswith("turn:") else self._of_client(row, reply, state)
        )
        if wrong is not None:
            self._findings.add(reply.sequence, "replies", f"the reply of {_shown(row.key)}: {wrong}")

    def _of_client(self, row: ReplyRow, reply: _AnyReply, state: SessionState) -> str | None:
        head = state.head
        assert head is not None
        if reply.agent_id is not None and (reply.agent_id, reply.closed) != (head.agent_id, head.closed_at is not None):
            return "agent_id or closed"
        if reply.queue_state is not None and reply.queue_state != head.queue_state:
            return "queue_state"
        if reply.turn_id is None:
            return None
        if reply.enqueue_sequence is None:
            return self._status(reply, TurnId(reply.turn_id), state)
        subject = state.turns.get(TurnId(reply.turn_id))
        if subject is None:
            return "turn_id"
        self._answered.add(subject.turn_id)
        told = (reply.sequence, reply.enqueue_sequence, reply.status, row.key)
        if told != (subject.first_sequence, subject.enqueue_sequence, subject.status, f"key:{subject.idempotency_key}"):
            return "sequence, enqueue_sequence, status or idempotency key"
        return None

    def _of_executor(self, row: ReplyRow, reply: _AnyReply, state: SessionState) -> str | None:
        turn_id = TurnId(row.key.removeprefix("turn:"))
        for claim in (reply.claim, reply.next):
            if claim is not None and (wrong := _claim(claim, state)) is not None:
                return wrong
        if reply.claim is not None:
            return None if reply.claim.turn_id == turn_id else "turn_id of the claim"
        return self._status(reply, turn_id, state)

    def _status(self, reply: _AnyReply, turn_id: TurnId, state: SessionState) -> str | None:
        subject = state.turns.get(turn_id)
        status = self.ended.get(turn_id) if subject is None else subject.status
        if status is None:
            return "its turn is not in the log"
        if reply.status is not None and reply.status != status:
            return f"status {reply.status} while the turn was {status}"
        if reply.interrupt_requested and (subject is None or subject.interrupt_then is None):
            return "interrupt_requested without such an event"
        return None

    def settled(self, subject: Turn, erased_to: int) -> None:
        """The turn is over: what is kept of it is its status. A turn whose acceptance has no reply is a finding."""
        if subject.turn_id in self._answered:
            self._answered.discard(subject.turn_id)
        elif subject.idempotency_key and subject.first_sequence > erased_to:
            detail = f"turn {subject.turn_id} was accepted, and its reply is not kept"
            self._findings.add(subject.first_sequence, "replies", detail)
        self.ended[subject.turn_id] = subject.status

    def end(self, turns: dict[TurnId, Turn], erased_to: int) -> None:
        """The same for turns that are not over."""
        for subject in turns.values():
            self.settled(subject, erased_to)


def _claim(claim: _Claimed, state: SessionState) -> str | None:
    head = state.head
    subject = state.turns.get(TurnId(claim.turn_id))
    if head is None or subject is None:
        return "turn_id of the claim"
    if (claim.turn_id, claim.fence, claim.attempt) != (head.active_turn_id, head.fence, subject.attempt):
        return "fence or attempt of the claim"
    return None


def _shown(key: str) -> str:
    """A key is a caller's own text: enough of it to find the row."""
    return repr(key if len(key) <= 60 else key[:60] + "…")
