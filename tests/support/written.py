"""A session written by the domain's own decisions, in memory: what the tables of one session would hold.

Ids, salts and times are counted, so that the same commands always give the same rows.
"""

import copy
from typing import Any

import msgspec

from domain import commands
from domain.commands import Command, ExecutorCommand
from domain.decisions import Limits, decide
from domain.errors import Rejection
from domain.events import item, registry
from domain.events.base import Event
from domain.events.envelope import Draft, StoredEvent
from domain.hashing import chain, digest
from domain.ids import CommandKey, EventId, Fence, Micros, Ordinal, Sequence, SessionId, TurnId, WorkerId
from domain.message import TurnMessages
from domain.parts import Part, TextPart
from domain.ports import AppliedEvent
from domain.replies import ClaimedTurn
from domain.session import GENESIS, SessionState, evolve
from projections.audit import HEAD_COLUMNS, HeadRow, ReplyRow, SessionAudit, SessionReport, Stored
from projections.audit.models import MESSAGE_PLACE, TURN_PLACE, message_row, turn_row

LIMITS = Limits(queue_depth=20)
WORKER = WorkerId("0198c0de-ffff-7000-8000-000000000001")
_START = 1_767_225_600_000_000


class WrittenSession:
    """Executes commands; `events`, `stored()` and `head()` are what an audit reads, `accepted` what led to it."""

    def __init__(self, number: int = 1) -> None:
        self._number = number
        self._count = 0
        self.session_id = SessionId(self.uuid())
        self.state = SessionState(session_id=self.session_id, turns={})
        self.events: list[StoredEvent] = []
        self.replies: dict[str, ReplyRow] = {}
        self.accepted: list[Command] = []
        self._messages: dict[TurnId, TurnMessages] = {}

    def uuid(self) -> str:
        self._count += 1
        return f"0198c0de-{self._number:04x}-7000-8000-{self._count:012x}"

    def now(self) -> Micros:
        return Micros(_START + 1000 * len(self.events))

    def try_to(self, command: Command) -> Any:
        """The reply, or None when the command is refused."""
        scratch = copy.deepcopy(self.state)
        scratch.touched.clear()
        try:
            decision = decide(scratch, command, self.now(), LIMITS)
        except Rejection:
            return None
        at = self.now()
        self.accepted.append(command)
        self.state = scratch
        for draft in decision.events:
            self._append(draft, at, msgspec.json.encode({"command": command.__struct_config__.tag}))
        if scratch.head is not None:
            scratch.head.head_hash = self.events[-1].hash
        self._keep(command, decision.reply, None if decision.claim is None else decision.claim.turn_id)
        return decision.reply

    def _append(self, draft: Draft, at: Micros, metadata: bytes) -> None:
        previous = self.events[-1].hash if self.events else GENESIS
        sequence = Sequence(len(self.events) + 1)
        event = sealed(
            StoredEvent(
                self.session_id,
                sequence,
                EventId(self.uuid()),
                draft.data.type,
                draft.data.schema_version,
                draft.turn_id,
                at,
                registry.encode(draft.data),
                draft.private,
                sequence.to_bytes(16, "big"),
                b"",
                None,
                metadata,
                b"",
            ),
            previous,
        )
        self.events.append(event)
        if draft.turn_id is not None:
            place = self.state.turns[draft.turn_id].enqueue_sequence
            fold = self._messages.setdefault(draft.turn_id, TurnMessages(draft.turn_id, place, []))
            fold.apply(AppliedEvent(sequence, event.event_id, draft.turn_id, at, draft.data))

    def _keep(self, command: Command, reply: Any, claimed: str | None) -> None:
        encoded = msgspec.json.encode(reply)
        if isinstance(command, ExecutorCommand):
            key, fence = f"turn:{command.turn_id}", command.fence
        elif isinstance(command, commands.ClaimTurn):
            if claimed is None:
                return
            key, fence = f"turn:{claimed}", None
        else:
            key, fence = f"key:{command.key}", None
        self.replies[key] = ReplyRow(reply.sequence, key, fence, encoded)

    def stored(self) -> Stored:
        """Rows of turns, messages and command_log."""
        turns = sorted((turn_row(turn) for turn in self.state.turns.values()), key=lambda row: int(row[TURN_PLACE]))
        messages = [message_row(m) for fold in self._messages.values() for m in fold.messages.values()]
        replies = sorted(self.replies.values(), key=lambda row: row.place)
        return Stored(turns, sorted(messages, key=lambda row: int(row[MESSAGE_PLACE])), replies)

    def head(self) -> HeadRow:
        """The row of `sessions`."""
        last = self.events[-1]
        return tuple(
            last.created_at if name == "last_event_at" else getattr(self.state.head, name) for name in HEAD_COLUMNS
        )

    def create(self) -> None:
        command = commands.CreateSession(session_id=self.session_id, key=CommandKey("create"), agent_id="echo")
        assert self.try_to(command) is not None

    def submit(self, text: str = "hello", *, also: list[Part] | None = None, **more: Any) -> Any:
        given: list[Part] = [TextPart(text), *(also or [])]
        turn_id = TurnId(self.uuid())
        key = CommandKey(f"k{turn_id}")
        return self.try_to(
            commands.SubmitTurn(session_id=self.session_id, key=key, turn_id=turn_id, input=given, by="ada", **more)
        )

    def claim(self) -> "Leg | None":
        command = commands.ClaimTurn(
            session_id=self.session_id, key=CommandKey(self.uuid()), worker_id=WORKER, take_over=True
        )
        reply = self.try_to(command)
        return None if reply is None or reply.claim is None else Leg(self, reply.claim)

    def lose_worker(self) -> None:
        """The claim's lease is over."""
        if self.state.claim is not None:
            self.state.claim.live = False


class Leg:
    """What a worker writes between a claim and the end, the pause or the hand-back; it numbers frames as the recorder
    does."""

    def __init__(self, session: WrittenSession, claim: ClaimedTurn) -> None:
        self.session = session
        self.claim = claim
        self.turn_id = TurnId(claim.turn_id)
        self._frame = claim.frame_base
        self._ordinal = 0

    def frame(self) -> int:
        self._frame += 1
        return self._frame

    def _common(self) -> dict[str, Any]:
        self._ordinal += 1
        return {
            "session_id": self.session.session_id,
            "key": CommandKey(f"{self.turn_id}:{self.claim.fence}:{self._ordinal}"),
            "turn_id": self.turn_id,
            "fence": Fence(self.claim.fence),
            "ordinal": Ordinal(self._ordinal),
        }

    def record(self, *events: Event, private: bytes | None = None) -> Any:
        drafts = [Draft(event, self.turn_id, private) for event in events]
        return self.session.try_to(commands.RecordEvents(**self._common(), events=drafts))

    def text(self, *pieces: str, message_id: str | None = None, partial: bool = False) -> item.ItemCompleted:
        numbers = [self.frame() for _ in range(len(pieces) + 2)]
        return item.ItemCompleted(
            attempt=self.claim.attempt,
            frame=numbers[-1],
            item_id=self.session.uuid(),
            kind="text",
            message_id=message_id or self.session.uuid(),
            text="".join(pieces),
            partial=partial,
            frames=item.ItemFrames([(numbers[0], len(numbers))], [len(piece) for piece in pieces]),
        )

    def two_texts(self) -> list[item.ItemCompleted]:
        """Two items that were open at the same time."""
        first = [self.frame()]
        second = [self.frame(), self.frame()]
        first += [self.frame(), self.frame()]
        second.append(self.frame())
        made = []
        for runs, end in (([(first[0], 1), (first[1], 2)], first[2]), ([(second[0], 2), (second[2], 1)], second[2])):
            made.append(
                item.ItemCompleted(
                    attempt=self.claim.attempt,
                    frame=end,
                    item_id=self.session.uuid(),
                    kind="text",
                    message_id=self.session.uuid(),
                    text="äb",
                    frames=item.ItemFrames(runs, [2]),
                )
            )
        return made

    def call(self, *, idempotent: bool = False) -> item.ItemCompleted:
        first, last = self.frame(), self.frame()
        return item.ItemCompleted(
            attempt=self.claim.attempt,
            frame=last,
            item_id=self.session.uuid(),
            kind="tool_call",
            tool_call=item.ToolCallData(tool_call_id="c1", name="lookup", arguments={"q": 1}, idempotent=idempotent),
            frames=item.ItemFrames([(first, 2)], []),
        )

    def started(self, call: item.ItemCompleted) -> item.ToolStarted:
        return item.ToolStarted(attempt=self.claim.attempt, frame=self.frame(), tool_call_id="c1", item_id=call.item_id)

    def result(self, call: item.ItemCompleted, revision: int, *, final: bool) -> item.ToolResultSnapshot:
        return item.ToolResultSnapshot(
            attempt=self.claim.attempt,
            frame=self.frame(),
            tool_call_id="c1",
            item_id=call.item_id,
            revision=revision,
            final=final,
            output="out",
            original_bytes=3,
            stored_bytes=3,
        )

    def checkpoint(self, index: int = 1) -> item.CheckpointReached:
        return item.CheckpointReached(
            attempt=self.claim.attempt, frame=self.frame(), message_index=index, reason="tool_batch"
        )

    def finish(self, outcome: Any = "completed", **more: Any) -> Any:
        return self.session.try_to(
            commands.FinishTurn(
                **self._common(), outcome=outcome, attempt=self.claim.attempt, frame=self.frame(), output="done", **more
            )
        )

    def pause(self, requirements: list[Any]) -> Any:
        return self.session.try_to(
            commands.PauseTurn(
                **self._common(), attempt=self.claim.attempt, frame=self.frame(), requirements=requirements
            )
        )

    def release(self) -> Any:
        return self.session.try_to(commands.ReleaseTurn(**self._common()))


def sealed(event: StoredEvent, previous: bytes) -> StoredEvent:
    """The event with digests and hash that fit what it holds."""
    salt = event.salt or b""
    payload_digest = digest(salt, event.payload)
    private_digest = None if event.private is None else digest(salt, event.private)
    hashed = chain(
        previous,
        event.session_id,
        event.sequence,
        event.event_id,
        event.type,
        event.schema_version,
        event.turn_id,
        event.created_at,
        payload_digest,
        private_digest,
        event.metadata,
    )
    return msgspec.structs.replace(event, payload_digest=payload_digest, private_digest=private_digest, hash=hashed)


def resealed(events: list[StoredEvent]) -> list[StoredEvent]:
    """What a forger with access to everything would leave: numbered anew, digests and chain recomputed."""
    previous = GENESIS
    made: list[StoredEvent] = []
    for number, event in enumerate(events, 1):
        made.append(sealed(msgspec.structs.replace(event, sequence=Sequence(number)), previous))
        previous = made[-1].hash
    return made


def audit(
    session_id: str, events: list[StoredEvent], stored: Stored | None, head: HeadRow | None, page: int = 7
) -> SessionReport:
    """Audit these rows in pages; with `stored` None, as an export (events only)."""
    checker = SessionAudit(session_id, complete=stored is not None)
    rows = stored or Stored()
    done = 0
    for begin in range(0, len(events), page):
        some = events[begin : begin + page]
        checker.feed(some, _between(rows, done, some[-1].sequence))
        done = max(done, some[-1].sequence)
    return checker.end(head, _between(rows, done, 2**62))


def _between(rows: Stored, after: int, upto: int) -> Stored:
    """Those that name a sequence in (after, upto]; the first page also has those that name none."""
    after = after or -(2**62)
    return Stored(
        [row for row in rows.turns if after < row[TURN_PLACE] <= upto],
        [row for row in rows.messages if after < row[MESSAGE_PLACE] <= upto],
        [row for row in rows.replies if after < row.place <= upto],
    )


def folded(session_id: SessionId, events: list[StoredEvent]) -> SessionState:
    """The state that these events come to."""
    state = SessionState(session_id=session_id, turns={})
    for event in events:
        evolve(state, event.event(), event.turn_id, event.sequence, event.created_at)
    return state
