"""The audit of one session: its events from zero, and beside them what else is stored of it."""

from collections.abc import Sequence as Many

import msgspec

from domain.events import hook, turn
from domain.events.base import Event
from domain.events.envelope import StoredEvent
from domain.events.registry import EVENT_TYPES, UnknownEvent
from domain.ids import SessionId, TurnId
from domain.parts import FilePart
from domain.session import SessionState, evolve
from domain.turn import Turn
from projections.audit.findings import Findings, SessionReport
from projections.audit.frames import FrameLine
from projections.audit.heads import Anchored, HeadRow, head_difference
from projections.audit.integrity import Integrity
from projections.audit.life import Life
from projections.audit.models import MessageRows, TurnRows
from projections.audit.pages import NEVER, PageRows, Stored
from projections.audit.replies import Replies
from projections.audit.tools import Tools

_INPUTS = (turn.TurnQueued, turn.InputRewritten)
_AFTER_THE_END = (turn.TurnSuperseded, hook.HookScheduled, hook.HookCompleted, hook.HookFailed, UnknownEvent)


class SessionAudit:
    """Feed it all events of one session, in pages, then `end`. Memory: what is queued or active, the read-model rows of
    a page, and the id of each turn that is over.

    `complete`: read models, head, replies and private parts were read too; an export has events only.
    """

    def __init__(self, session_id: str, *, complete: bool, anchored: Anchored | None = None) -> None:
        self._findings = Findings(session_id)
        self._report = SessionReport(session_id, findings=self._findings.all)
        self._complete = complete
        self._anchored = anchored
        self._state = SessionState(session_id=SessionId(session_id), turns={})
        self._judging = True
        self._last_event_at: int | None = None
        self._integrity = Integrity(self._findings, private_known=complete)
        self._life = Life(self._findings)
        self._tools: dict[TurnId, Tools] = {}
        self._frames: dict[TurnId, FrameLine] = {}
        self._turn_rows = TurnRows(self._findings)
        self._message_rows = MessageRows(self._findings)
        self._replies = Replies(self._findings)

    def feed(self, events: Many[StoredEvent], stored: Stored | None = None) -> None:
        """A page of events, and all rows not given yet that name a sequence up to that of its last event."""
        rows = PageRows(stored or Stored())
        for event in events:
            self._judging = self._integrity.trusted(event) and self._judging
            if self._anchored is not None and self._anchored.sequence == event.sequence:
                self._check_anchor(event.hash)
            if self._judging:
                self._judging = self._judge(event)
            if self._judging:
                self._report.judged_to = event.sequence
                if self._complete and rows.next <= event.sequence:
                    self._compare(rows, event.sequence)
        if events:
            self._last_event_at = events[-1].created_at
        self._report.events += len(events)
        self._state.touched.clear()

    def end(self, head: HeadRow | None = None, left: Stored | None = None) -> SessionReport:
        """After the last page. `head`: the row of `sessions`, None where there is none; `left`: rows that name a
        sequence which the log does not have."""
        self._integrity.end()
        if self._anchored is not None:
            detail = f"a head was signed here, and the log ends at {self._integrity.sequence}: its tail was cut off"
            self._findings.add(self._anchored.sequence, "anchor", detail)
        if self._complete:
            self._check_head(head)
            if self._judging:
                self._compare(PageRows(left or Stored()), NEVER)
                self._turn_rows.end(self._state.turns)
                self._message_rows.end(self._integrity.erased_to)
                self._replies.end(self._state.turns, self._integrity.erased_to)
        self._report.erased_to = self._integrity.erased_to
        return self._report

    def _check_anchor(self, found: bytes) -> None:
        if self._anchored is not None and found != self._anchored.hash:
            self._findings.add(self._anchored.sequence, "anchor", "another hash was signed: the chain was rewritten")
        self._anchored = None

    def _judge(self, stored: StoredEvent) -> bool:
        """Apply one event to every rule; False when nothing can be said after it."""
        try:
            event = stored.event()
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as error:
            reason = f"no upcaster for {error}" if isinstance(error, KeyError) else str(error)
            self._findings.add(stored.sequence, "payload", f"{stored.type} {stored.schema_version}: {reason}")
            return False
        if isinstance(event, UnknownEvent):
            self._skip(stored)
            if event.name in EVENT_TYPES:
                return False  # a newer version of what the fold is made of
        turn_id = stored.turn_id
        if turn_id is not None and turn_id in self._replies.ended:
            if not self._after_the_end(stored, event, turn_id):
                return False
            turn_id = None
        return self._fold(stored, event, turn_id)

    def _fold(self, stored: StoredEvent, event: Event, turn_id: TurnId | None) -> bool:
        state, sequence = self._state, stored.sequence
        subject = None if turn_id is None else state.turns.get(turn_id)
        if state.head is not None and not self._life.possible(state.head, subject, event, turn_id, sequence):
            return False
        try:
            evolve(state, event, turn_id, sequence, stored.created_at)
            if turn_id is not None:
                self._of_turn(stored, event, state.turns[turn_id])
        except ValueError as impossible:  # IllegalTransition, and what no fold can make sense of
            late = stored.type == "tool_result.snapshot" and subject is not None and subject.terminal
            self._findings.add(sequence, "tool_before_end" if late else "transition", str(impossible))
            return False
        return True

    def _after_the_end(self, stored: StoredEvent, event: Event, turn_id: TurnId) -> bool:
        """An event of a turn that is over and let go: only marks and hooks may follow."""
        if not isinstance(event, _AFTER_THE_END):
            rule = "tool_before_end" if stored.type == "tool_result.snapshot" else "transition"
            status = self._replies.ended[turn_id]
            self._findings.add(stored.sequence, rule, f"{stored.type} of turn {turn_id}, which is {status}")
            return False
        if self._complete:
            self._turn_rows.went_on(turn_id, stored.sequence)
        return True

    def _skip(self, stored: StoredEvent) -> None:
        name = f"{stored.type} {stored.schema_version}"
        self._report.skipped[name] = self._report.skipped.get(name, 0) + 1
        if stored.turn_id in self._frames:
            self._frames[stored.turn_id].unreadable()

    def _of_turn(self, stored: StoredEvent, event: Event, subject: Turn) -> None:
        turn_id, sequence = subject.turn_id, stored.sequence
        frames = self._frames.get(turn_id)
        if isinstance(event, _INPUTS):
            for part in event.input:
                if isinstance(part, FilePart):
                    self._report.blobs.setdefault(part.blob, sequence)
        elif frames is None and isinstance(event, turn.TurnStarted):
            frames = self._frames[turn_id] = FrameLine(self._findings)
            self._tools[turn_id] = Tools(self._findings)
        if frames is not None:
            frames.apply(event, sequence, erased=stored.salt is None)
            self._tools[turn_id].apply(event, sequence)
        if self._complete:
            self._message_rows.fold(event, subject, sequence, stored.event_id, stored.created_at)
        if subject.terminal:
            self._frames.pop(turn_id, None)
            self._tools.pop(turn_id, None)
            if not self._complete:
                self._let_go(subject)

    def _compare(self, rows: PageRows, upto: int) -> None:
        """All rows that name a sequence up to that one."""
        state = self._state
        final: list[Turn] = []
        if rows.turns.next <= upto:
            for row in rows.turns.upto(upto):
                subject = self._turn_rows.compare(row, state.turns)
                if subject is not None and subject.terminal:
                    final.append(subject)
        if rows.messages.next <= upto:
            for row in rows.messages.upto(upto):
                self._message_rows.compare(row)
        if rows.replies.next <= upto:
            for reply in rows.replies.upto(upto):
                self._replies.compare(reply, state)
        rows.look()
        for subject in final:
            self._message_rows.settled(subject.turn_id)
            self._turn_rows.settled(subject.turn_id)
            self._replies.settled(subject, self._integrity.erased_to)
            self._let_go(subject)

    def _let_go(self, subject: Turn) -> None:
        self._replies.ended[subject.turn_id] = subject.status
        del self._state.turns[subject.turn_id]

    def _check_head(self, stored: HeadRow | None) -> None:
        integrity = self._integrity
        head = self._state.head if self._judging else None
        if stored is None:
            self._findings.add(integrity.sequence, "head", "there is no row of sessions")
        elif wrong := head_difference(stored, head, integrity.sequence, integrity.hashes, self._last_event_at):
            self._findings.add(integrity.sequence, "head", wrong)
