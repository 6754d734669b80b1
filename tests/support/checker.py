"""An independent judge of what is in the event store: it imports nothing of Turnlog and reads only rows.

Every finding names session, sequence and rule. The oracles of the acceptance tests (one gapless line per session,
FIFO, one active turn, no tool run twice) are these rules.
"""

import hashlib
import itertools
import json
import struct
from dataclasses import dataclass, field
from typing import Any

TERMINAL = {"turn.completed", "turn.failed", "turn.interrupted", "turn.cancelled"}
STATUS = {t: t.removeprefix("turn.") for t in TERMINAL}
EXECUTOR = {"item.completed", "tool.started", "tool_result.snapshot", "runtime.event", "usage.recorded"}


@dataclass(frozen=True)
class Finding:
    """One broken rule at one place."""

    session_id: str
    sequence: int
    rule: str
    what: str


@dataclass
class TurnSeen:
    """What the log has told of one turn so far."""

    enqueue_sequence: int
    status: str = "queued"
    attempt: int = 0
    superseded_by: str | None = None
    last_frame: dict[int, int] = field(default_factory=dict)
    spans: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    started_tools: dict[str, int] = field(default_factory=dict)
    final_tools: set[str] = field(default_factory=set)
    idempotent: dict[str, bool] = field(default_factory=dict)
    messages: dict[str, dict[str, Any]] = field(default_factory=dict)
    items: dict[str, tuple[str, str]] = field(default_factory=dict)
    superseded_items: set[str] = field(default_factory=set)


def chain_hash(previous: bytes, row: Any, created_at_us: int) -> bytes:
    """The chain hash, written down a second time from the specification."""

    def prefixed(value: bytes | None) -> bytes:
        return b"\xff" * 4 if value is None else struct.pack(">I", len(value)) + value

    def text(value: Any) -> bytes | None:
        return None if value is None else str(value).encode()

    def number(value: int) -> bytes:
        return struct.pack(">q", value)

    parts = [
        previous,
        text(row["session_id"]),
        number(row["sequence"]),
        text(row["event_id"]),
        text(row["type"]),
        number(row["schema_version"]),
        text(row["turn_id"]),
        number(created_at_us),
        row["payload_digest"],
        row["private_digest"],
        row["metadata"] if isinstance(row["metadata"], bytes) else row["metadata"].encode(),
    ]
    return hashlib.sha256(b"".join(prefixed(p) for p in parts)).digest()


class SessionCheck:
    """Feed the rows of one session in sequence; `findings` says what is wrong."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.findings: list[Finding] = []
        self.sequence = 0
        self.hash = b"\0" * 32
        self.turns: dict[str, TurnSeen] = {}
        self.active: str | None = None
        self.enqueued = 0
        self.started_order: list[int] = []
        self.closed = False

    def find(self, rule: str, what: str) -> None:
        self.findings.append(Finding(self.session_id, self.sequence, rule, what))

    def row(self, row: Any, created_at_us: int) -> None:
        """One row of `events`, with payload and metadata as text or bytes."""
        if row["sequence"] != self.sequence + 1:
            self.find("gapless", f"{row['sequence']} follows {self.sequence}")
        self.sequence = row["sequence"]
        payload = row["payload"] if isinstance(row["payload"], bytes) else row["payload"].encode()
        if row["salt"] is not None and hashlib.sha256(row["salt"] + payload).digest() != row["payload_digest"]:
            self.find("digest", "payload does not match its digest")
        if chain_hash(self.hash, row, created_at_us) != row["hash"]:
            self.find("chain", "hash does not follow from the one before")
        self.hash = row["hash"]
        self.event(row["type"], None if row["turn_id"] is None else str(row["turn_id"]), json.loads(payload))

    def event(self, type_: str, turn_id: str | None, data: dict[str, Any]) -> None:
        if self.closed and not type_.startswith(("hook.", "session.erased")):
            self.find("closed", f"{type_} after session.closed")
        if type_ == "session.closed":
            self.closed = True
        if (self.sequence == 1) != (type_ == "session.created"):
            self.find("created-first", type_)
        if turn_id is None:
            return
        if type_ == "turn.queued":
            self.enqueued += 1
            if data["enqueue_sequence"] != self.enqueued:
                self.find("enqueue", f"{data['enqueue_sequence']} where {self.enqueued} is due")
            self.turns[turn_id] = TurnSeen(data["enqueue_sequence"])
            return
        turn = self.turns.get(turn_id)
        if turn is None:
            self.find("queued-first", f"{type_} of an unknown turn")
            return
        self._life(type_, turn_id, turn, data)
        if type_ in EXECUTOR:
            self._work(type_, turn_id, turn, data)
        if "frame" in data:
            self._frame(type_, turn, data)

    def _life(self, type_: str, turn_id: str, turn: TurnSeen, data: dict[str, Any]) -> None:
        if type_ == "turn.superseded":
            if turn.status not in STATUS.values():
                self.find("superseded", f"while {turn.status}")
            turn.superseded_by = data["by_turn_id"]
            return
        if turn.status in STATUS.values():
            if not type_.startswith("hook."):
                self.find("terminal-is-final", f"{type_} after {turn.status}")
            return
        if type_ == "turn.started":
            if self.active not in (None, turn_id):
                self.find("one-active", f"{turn_id} starts while {self.active} is active")
            if turn.status == "queued":
                waiting = [t.enqueue_sequence for t in self.turns.values() if t.status == "queued"]
                if turn.enqueue_sequence != min(waiting):
                    self.find("fifo", f"{turn.enqueue_sequence} starts before {min(waiting)}")
                self.started_order.append(turn.enqueue_sequence)
            if data["reason"] != "continued" and data["attempt"] != turn.attempt + 1:
                self.find("attempt", f"{data['attempt']} follows {turn.attempt}")
            self.active, turn.status, turn.attempt = turn_id, "running", data["attempt"]
            turn.last_frame[turn.attempt] = data["frame_base"]
        elif type_ == "turn.paused":
            turn.status = "paused"
        elif type_ in TERMINAL:
            legal = {"queued": {"turn.cancelled"}, "running": TERMINAL - {"turn.cancelled"}}
            if type_ not in legal.get(turn.status, TERMINAL - {"turn.completed"}):
                self.find("transition", f"{turn.status} -> {type_}")
            unfinished = [i for i in turn.started_tools if i not in turn.final_tools]
            if type_ == "turn.completed" and unfinished:
                self.find("results-before-terminal", f"{unfinished} have no final result")
            if turn.status != "queued":
                self.active = None
            turn.status = STATUS[type_]

    def _work(self, type_: str, turn_id: str, turn: TurnSeen, data: dict[str, Any]) -> None:
        if self.active != turn_id or turn.status != "running":
            self.find("only-the-active-turn-writes", type_)
        if data["attempt"] != turn.attempt:
            self.find("attempt", f"{type_} of attempt {data['attempt']} while {turn.attempt} runs")
        if type_ == "item.completed":
            self._item(turn, data)
        elif type_ == "tool.started":
            item = data["item_id"]
            if item not in turn.idempotent:
                self.find("call-before-start", item)
            turn.started_tools[item] = turn.started_tools.get(item, 0) + 1
            if item in turn.final_tools:
                self.find("result-is-final", f"{item} started again after its result")
            if turn.started_tools[item] > 1 and not turn.idempotent.get(item):
                self.find("never-twice", f"{item} started {turn.started_tools[item]} times")
        elif type_ == "tool_result.snapshot":
            if data["item_id"] in turn.final_tools:
                self.find("result-is-final", data["item_id"])
            if data["final"]:
                turn.final_tools.add(data["item_id"])

    def _item(self, turn: TurnSeen, data: dict[str, Any]) -> None:
        text, cuts = data.get("text") or "", data["frames"]["cuts"]
        if data["kind"] != "tool_call" and sum(cuts) != len(text):
            self.find("cuts", f"{sum(cuts)} for a text of {len(text)}")
        if data["kind"] == "tool_call":
            turn.idempotent[data["item_id"]] = data["tool_call"].get("idempotent", False)
        if sum(count for _, count in data["frames"]["runs"]) != len(cuts) + 2:
            self.find("runs", f"{data['frames']['runs']} for {len(cuts)} deltas")
        turn.spans.setdefault(data["attempt"], []).extend(
            (first, first + count - 1) for first, count in data["frames"]["runs"]
        )

    def _frame(self, type_: str, turn: TurnSeen, data: dict[str, Any]) -> None:
        attempt, frame = data.get("attempt"), data["frame"]
        if attempt is None:
            return
        if frame <= turn.last_frame.get(attempt, -1):
            self.find("frames-ascend", f"{type_} {frame} after {turn.last_frame[attempt]}")
        turn.last_frame[attempt] = frame
        if type_ != "item.completed":
            turn.spans.setdefault(attempt, []).append((frame, frame))

    def end(self, *, all_terminal: bool = True) -> list[Finding]:
        """What only the end shows."""
        for turn_id, turn in self.turns.items():
            if all_terminal and turn.status not in STATUS.values():
                self.find("terminal", f"{turn_id} is {turn.status}")
            for attempt, spans in turn.spans.items():
                ordered = sorted(spans)
                for (_, end), (begin, _) in itertools.pairwise(ordered):
                    if begin <= end:
                        self.find("frames-unique", f"attempt {attempt}: {begin} is used twice")
        if self.started_order != sorted(self.started_order):
            self.find("fifo", f"{self.started_order}")
        return self.findings


async def check_database(connection: Any, *, all_terminal: bool = True) -> list[Finding]:
    """Replay every session of an agent database, read through a plain asyncpg connection."""
    findings: list[Finding] = []
    query = """
        SELECT session_id::text, sequence, event_id::text, type, schema_version, turn_id::text, payload::text, salt,
               payload_digest, private_digest, metadata::text, hash,
               (extract(epoch FROM created_at) * 1000000)::bigint AS created_us
        FROM events ORDER BY session_id, sequence"""
    check: SessionCheck | None = None
    async with connection.transaction():
        async for row in connection.cursor(query):
            if check is None or check.session_id != row["session_id"]:
                if check is not None:
                    findings += check.end(all_terminal=all_terminal)
                check = SessionCheck(row["session_id"])
            check.row(row, row["created_us"])
    if check is not None:
        findings += check.end(all_terminal=all_terminal)
    return findings
