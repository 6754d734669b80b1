"""The life of a session and its turns, beside what the domain's own fold refuses: who may start, when, and as what."""

from domain.events import hook, session, turn
from domain.events.base import Event, ExecutorEvent
from domain.ids import Attempt, TurnId, frame_base
from domain.session import Head
from domain.turn import ACTIVE_STATUS, Turn
from projections.audit.findings import Findings

_AFTER_CLOSE = (session.SessionErased, hook.HookScheduled, hook.HookCompleted, hook.HookFailed)


class Life:
    """Asked before each event is folded. `waiting` are the queued turns in the order of their acceptance."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self.waiting: dict[TurnId, None] = {}

    def possible(self, head: Head, subject: Turn | None, event: Event, turn_id: TurnId | None, sequence: int) -> bool:
        """False on what makes a further fold meaningless; `subject` is the turn as it is before the event."""
        if head.closed_at is not None and not isinstance(event, _AFTER_CLOSE):
            self._findings.add(sequence, "closed", f"{event.type} after session.closed")
        if turn_id is None:
            return True
        if isinstance(event, turn.TurnQueued):
            self.waiting[turn_id] = None
        elif subject is None:
            return True
        elif isinstance(event, ExecutorEvent):
            if subject.status == "running" and event.attempt != subject.attempt:
                detail = f"{event.type} of attempt {event.attempt} while {subject.attempt} is the newest"
                self._findings.add(sequence, "attempt", detail)
        elif isinstance(event, turn.TurnStarted):
            return self._start(head, subject, event, sequence)
        elif isinstance(event, turn.TERMINAL) and subject.status == "queued":
            self.waiting.pop(turn_id, None)
        return True

    def _start(self, head: Head, subject: Turn, event: turn.TurnStarted, sequence: int) -> bool:
        if head.active_turn_id not in (None, subject.turn_id):
            self._findings.add(
                sequence, "one_active", f"{subject.turn_id} starts while {head.active_turn_id} is active"
            )
            return False
        self._order(head, subject, sequence)
        self._attempt(subject, event, sequence)
        return True

    def _order(self, head: Head, subject: Turn, sequence: int) -> None:
        if subject.status != "queued":
            return
        first = next(iter(self.waiting), None)
        if first != subject.turn_id:
            self._findings.add(sequence, "queue_order", f"{subject.turn_id} starts before {first}")
        if head.queue_state != "open":
            self._findings.add(sequence, "queue_order", f"{subject.turn_id} starts while the queue is paused")
        self.waiting.pop(subject.turn_id, None)

    def _attempt(self, subject: Turn, event: turn.TurnStarted, sequence: int) -> None:
        goes_on = subject.status == "paused"
        due = subject.attempt if goes_on else subject.attempt + 1
        base = subject.next_frame if goes_on and subject.next_frame is not None else frame_base(Attempt(due))
        if (event.attempt, event.frame_base) != (due, base):
            detail = f"attempt {event.attempt} from frame {event.frame_base} where {due} from {base} is due"
            self._findings.add(sequence, "attempt", detail)
        reasons = (
            ("continued",) if goes_on else ("first",) if subject.status == "queued" else ("released", "worker_lost")
        )
        if event.reason not in reasons and subject.status in (*ACTIVE_STATUS, "queued"):
            self._findings.add(sequence, "attempt", f"reason {event.reason} of a turn that was {subject.status}")
