"""What the commands of one group lead to in one session: pure, without I/O, the same for every store.

Each command is decided on a scratch copy, so that a refusal leaves the session as it was and disturbs nobody.
"""

import copy
from collections.abc import Sequence as Many

import msgspec

from domain import commands
from domain.clock import IdSource
from domain.commands import Command, ExecutorCommand
from domain.decisions import Limits, decide
from domain.decisions.decision import Decision
from domain.errors import IdempotencyMismatch, IllegalEvents, PayloadTooLarge, Rejection, StaleFence
from domain.events import registry
from domain.events.envelope import Draft, StoredEvent
from domain.events.naming import is_type
from domain.hashing import chain, digest
from domain.ids import EventId, Fence, Generation, Micros, Ordinal, Sequence, SessionId, TurnId
from domain.ports import AppliedEvent, Outcome, SessionChange
from domain.session import GENESIS, Claim, SessionState
from domain.turn import IllegalTransition
from infra.pipeline.member import Member, turn_key

_encode = msgspec.json.Encoder().encode


class KeptReply(msgspec.Struct, frozen=True):
    """A row of `command_log`. `fence` and `ordinal` are an executor command's; a claim has ordinal 0. `reply` is None
    after an erase."""

    fingerprint: bytes
    fence: Fence | None
    ordinal: Ordinal | None
    reply: bytes | None


class Tally(msgspec.Struct):
    """How many turns of one owner have not ended, as read under the owner's lock; those that the group begins are
    added. All sessions of a group share it."""

    open: int = 0


class Loaded(msgspec.Struct, kw_only=True):
    """A session as read under its lock. `now`: on the store's clock, which is everybody's; `last_event_at`: 0 where
    there is none; `tallies`: by owner, of the owners that commands of the group name."""

    state: SessionState
    replies: dict[str, KeptReply]
    now: Micros
    last_event_at: Micros = Micros(0)
    tallies: dict[str, Tally] = {}


class Birth(msgspec.Struct, frozen=True):
    """Generations that a new session is born in."""

    turns: Generation = Generation(1)
    messages: Generation = Generation(1)


class SessionBatch:
    """Decides commands of one session in order; afterwards it holds everything that one transaction must write."""

    def __init__(self, loaded: Loaded, *, ids: IdSource, limits: Limits, payload_bytes: int, birth: Birth) -> None:
        self._before = loaded.state
        self._ids = ids
        self._limits = limits
        self._payload_bytes = payload_bytes
        self._birth = birth
        self.state = loaded.state
        # A clock that was set back, or that of a standby that took over, must not make a session's times go back.
        self.at = max(loaded.now, loaded.last_event_at)
        self.known = loaded.replies
        self._tallies = loaded.tallies
        self._begun: dict[TurnId, str] = {}
        self.fresh_replies: dict[str, KeptReply] = {}
        self.events: list[StoredEvent] = []
        self.applied: list[AppliedEvent] = []
        self.touched: set[TurnId] = set()

    @property
    def session_id(self) -> SessionId:
        return self.state.session_id

    def run(self, members: Many[Member]) -> list[Outcome | Exception]:
        """One answer a command, in the same order. Nothing in here raises for a command's sake."""
        return [self._answer(member) for member in members]

    def claim_change(self) -> Claim | msgspec.UnsetType | None:
        """The claim to write down, None where it ended, UNSET where nothing changed."""
        if self.state.claim is self._before.claim:
            return msgspec.UNSET
        return self.state.claim

    def change(self, generation: Generation) -> SessionChange:
        """What a projection gets."""
        before = self._before.turns
        return SessionChange(
            session_id=self.session_id,
            generation=generation,
            events=self.applied,
            before={turn_id: before.get(turn_id) for turn_id in self.touched},
            after={turn_id: self.state.turns[turn_id] for turn_id in self.touched},
        )

    def begun(self) -> dict[TurnId, str]:
        """Turns that count with an owner from now on."""
        return {turn_id: owner for turn_id, owner in self._begun.items() if not self.state.turns[turn_id].terminal}

    def ended(self) -> list[TurnId]:
        """Turns that count with nobody from now on."""
        return [turn_id for turn_id in self.touched if self.state.turns[turn_id].terminal]

    def startable(self) -> bool:
        """Something may be claimed now: worth a wake hint."""
        head = self.state.head
        if head is None or head.closed_at is not None:
            return False
        if head.active_turn_id is None:
            return head.queue_state == "open" and head.queued_count > 0 and not head.closing
        active = self.state.turns.get(head.active_turn_id)
        return active is not None and (active.released or (active.status == "paused" and active.continued))

    def _answer(self, member: Member) -> Outcome | Exception:
        try:
            kept = self._kept(member)
            if kept is not None:
                return Outcome(reply=kept, replayed=True)
            return Outcome(reply=self._decide(member))
        except Rejection as refused:
            return refused
        except IllegalTransition as impossible:
            return IllegalEvents(reason=str(impossible))

    def _kept(self, member: Member) -> bytes | None:
        command = member.command
        row = self._row(member)
        if row is None:
            return None
        if isinstance(command, commands.ClaimTurn):
            return row.reply if (row.fingerprint, row.ordinal) == (member.fingerprint, 0) else None
        if isinstance(command, ExecutorCommand):
            return _executor_reply(row, command, member.fingerprint)
        if row.fingerprint != member.fingerprint or row.reply is None:
            raise IdempotencyMismatch()
        return row.reply

    def _row(self, member: Member) -> KeptReply | None:
        key = member.log_key
        if key is None:
            claim = self.state.claim
            if claim is None or claim.worker_id != getattr(member.command, "worker_id", None):
                return None
            key = turn_key(claim.turn_id)
        return self.fresh_replies.get(key) or self.known.get(key)

    def _decide(self, member: Member) -> bytes:
        command = member.command
        state = self.state
        scratch = SessionState(
            session_id=state.session_id,
            head=copy.copy(state.head),
            claim=state.claim,
            turns={turn_id: copy.copy(turn) for turn_id, turn in state.turns.items()},
            touched=set(),
        )
        owner = command.owner if isinstance(command, commands.BeginTurn) else None
        tally = Tally() if owner is None else self._tallies.setdefault(owner, Tally())
        scratch.open_turns = tally.open
        decision = decide(scratch, command, self.at, self._limits)
        if decision.claim is not None:
            scratch.claim = decision.claim
        self._write(scratch, decision, command)
        reply = _encode(decision.reply)
        self._keep(member, decision, reply)
        self.state = scratch
        self.touched |= scratch.touched
        if owner is not None and isinstance(command, commands.BeginTurn):
            tally.open += 1
            self._begun[command.turn_id] = owner
        return reply

    def _write(self, scratch: SessionState, decision: Decision, command: Command) -> None:
        """Give the decided events their identity and their place in the chain; all of them or none."""
        head = scratch.head
        if head is None or not decision.events:
            return
        first = self.state.head is None
        if first:
            head.turns_generation, head.messages_generation = self._birth.turns, self._birth.messages
        previous = GENESIS if self.state.head is None else self.state.head.head_hash
        sequence = head.last_sequence - len(decision.events)
        metadata = _metadata(command)
        stored: list[StoredEvent] = []
        for draft in decision.events:
            sequence += 1
            event = self._stored(draft, Sequence(sequence), previous, metadata)
            previous = event.hash
            stored.append(event)
        head.head_hash = previous
        self.events += stored
        self.applied += [
            AppliedEvent(event.sequence, event.event_id, event.turn_id, self.at, draft.data)
            for event, draft in zip(stored, decision.events, strict=True)
        ]

    def _stored(self, draft: Draft, sequence: Sequence, previous: bytes, metadata: bytes) -> StoredEvent:
        data = draft.data
        payload = registry.encode(data)
        if len(payload) > self._payload_bytes:
            raise PayloadTooLarge(type=data.type, size=len(payload), limit=self._payload_bytes)
        # Both stand in lines of streams. JSON of ours has no raw line break, unless it was put in ready made.
        if not is_type(data.type) or b"\n" in payload or b"\r" in payload:
            raise IllegalEvents(reason="a type or a payload would break the line that it stands in")
        salt = self._ids.salt()
        event_id = EventId(self._ids.uuid7())
        payload_digest = digest(salt, payload)
        private_digest = None if draft.private is None else digest(salt, draft.private)
        session_id = self.state.session_id
        version = data.schema_version
        hashed = chain(
            previous,
            session_id,
            sequence,
            event_id,
            data.type,
            version,
            draft.turn_id,
            self.at,
            payload_digest,
            private_digest,
            metadata,
        )
        return StoredEvent(
            session_id,
            sequence,
            event_id,
            data.type,
            version,
            draft.turn_id,
            self.at,
            payload,
            draft.private,
            salt,
            payload_digest,
            private_digest,
            metadata,
            hashed,
        )

    def _keep(self, member: Member, decision: Decision, reply: bytes) -> None:
        command = member.command
        if isinstance(command, ExecutorCommand):
            row = KeptReply(member.fingerprint, command.fence, command.ordinal, reply)
            self.fresh_replies[turn_key(command.turn_id)] = row
        elif isinstance(command, commands.ClaimTurn):
            # A claim that only sealed a dead turn needs no memory: its repeat claims what may start then.
            if decision.claim is not None:
                row = KeptReply(member.fingerprint, decision.claim.fence, Ordinal(0), reply)
                self.fresh_replies[turn_key(decision.claim.turn_id)] = row
        elif member.log_key is not None:
            self.fresh_replies[member.log_key] = KeptReply(member.fingerprint, None, None, reply)


def _executor_reply(row: KeptReply, command: ExecutorCommand, fingerprint: bytes) -> bytes | None:
    if row.fence is None or row.ordinal is None or row.fence < command.fence:
        return None
    if row.fence > command.fence or row.ordinal > command.ordinal:
        raise StaleFence()
    if row.ordinal < command.ordinal:
        return None
    if row.fingerprint != fingerprint:
        raise IdempotencyMismatch()
    if row.reply is None:
        raise StaleFence()
    return row.reply


_metadata_of: dict[str, bytes] = {}


def _metadata(command: Command) -> bytes:
    """Trace and cause, nothing that a user wrote."""
    tag = str(type(command).__struct_config__.tag)
    if isinstance(command, commands.CreateSession):
        # Whose session it is, for read models of usage: an id, and nowhere else in the log.
        whole = {"command": tag, "by": command.by, "trace": command.trace}
        return _encode({name: value for name, value in whole.items() if value is not None})
    if command.trace is not None:
        return _encode({"command": tag, "trace": command.trace})
    known = _metadata_of.get(tag)
    if known is None:
        known = _metadata_of[tag] = _encode({"command": tag})
    return known
