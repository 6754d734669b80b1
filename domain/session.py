"""State of one session: its stream head, its queue and the turns that are loaded; and how events change it.

`evolve` is the one fold of session events: the pipeline, rebuilds and the audit all use it.
"""

from typing import Any, Literal

import msgspec

from domain.events import session, turn
from domain.events.base import Event
from domain.ids import EnqueueSequence, Fence, Generation, Micros, Sequence, SessionId, TurnId, WorkerId
from domain.turn import OF_ATTEMPT, IllegalTransition, Turn, evolve_turn, new_turn

QueueState = Literal["open", "paused"]
ChatStatus = Literal["agent", "human"]

_OF_QUEUE: frozenset[type[Any]] = frozenset((session.QueuePaused, session.QueueResumed, session.SessionClosed))
_HANDED_BACK = (turn.TurnPaused, turn.TurnReleased)

GENESIS = b"\0" * 32
"""What the first event of a stream is chained to."""


class Head(msgspec.Struct, kw_only=True):
    """The stream head of a session: one row of `sessions`."""

    session_id: SessionId
    agent_id: str
    component: str
    created_at: Micros
    last_sequence: Sequence = Sequence(0)
    head_hash: bytes = GENESIS
    active_turn_id: TurnId | None = None
    tip_turn_id: TurnId | None = None
    fence: Fence = Fence(0)
    queue_state: QueueState = "open"
    next_enqueue_sequence: EnqueueSequence = EnqueueSequence(1)
    queued_count: int = 0
    closing: bool = False
    closed_at: Micros | None = None
    turns_generation: Generation = Generation(1)
    messages_generation: Generation = Generation(1)


class Claim(msgspec.Struct, kw_only=True):
    """Who executes the active turn. `live`: the worker's lease had not expired on the database's clock when loaded.
    `silent_seconds`: since the runtime last gave a frame, as the holder's heartbeat told, on the same clock."""

    turn_id: TurnId
    fence: Fence
    worker_id: WorkerId
    live: bool = True
    silent_seconds: float = 0.0


class SessionState(msgspec.Struct, kw_only=True):
    """What a decision sees: the head, the claim, and those turns that the command may concern (see `Wanted`).
    `open_turns`: of the command's owner, in all sessions."""

    session_id: SessionId
    head: Head | None = None
    claim: Claim | None = None
    turns: dict[TurnId, Turn] = {}
    touched: set[TurnId] = set()
    open_turns: int = 0

    def active(self) -> Turn | None:
        """The running or paused turn."""
        if self.head is None or self.head.active_turn_id is None:
            return None
        return self.turns[self.head.active_turn_id]

    def next_queued(self) -> Turn | None:
        """The lowest queued turn; correct as long as as many queued turns were loaded as the group may start or
        cancel."""
        waiting = [t for t in self.turns.values() if t.status == "queued"]
        return min(waiting, key=lambda t: t.enqueue_sequence, default=None)

    def queued(self) -> list[Turn]:
        """Loaded queued turns in FIFO order."""
        return sorted((t for t in self.turns.values() if t.status == "queued"), key=lambda t: t.enqueue_sequence)


class Wanted(msgspec.Struct, kw_only=True):
    """What a command needs loaded beside head, claim and active turn (with the turn that one regenerates)."""

    turn_ids: tuple[TurnId, ...] = ()
    external_ids: tuple[str, ...] = ()
    queued: int = 0
    all_queued: bool = False


def chat_status(queue_state: str, queued: int, active_status: str | None, continued: bool = False) -> ChatStatus:
    """`agent` while a turn is queued or running; `human` when nothing is, or when people are asked."""
    if active_status == "running" or (active_status == "paused" and continued):
        return "agent"
    if active_status == "paused" or queue_state == "paused":
        return "human"
    return "agent" if queued else "human"


def evolve(state: SessionState, event: Event, turn_id: TurnId | None, sequence: Sequence, at: Micros) -> None:
    """Apply one committed or decided event, in place. Raises IllegalTransition on what can never follow."""
    if isinstance(event, session.SessionCreated):
        _create(state, event, at)
    head = state.head
    if head is None:
        raise IllegalTransition(f"{event.type} before session.created")
    if sequence != head.last_sequence + 1:
        raise IllegalTransition(f"sequence {sequence} after {head.last_sequence}")
    if turn_id is not None:
        _evolve_turn(state, head, event, turn_id, sequence, at)
    if type(event) in _OF_QUEUE:
        match event:
            case session.QueuePaused():
                head.queue_state = "paused"
            case session.QueueResumed():
                head.queue_state = "open"
            case session.SessionClosed():
                head.closed_at = at
    head.last_sequence = sequence


def _create(state: SessionState, event: session.SessionCreated, at: Micros) -> None:
    if state.head is not None and state.head.last_sequence:
        raise IllegalTransition("session.created twice")
    fresh = state.head
    state.head = Head(
        session_id=state.session_id,
        agent_id=event.agent_id,
        component=event.component,
        created_at=at,
        turns_generation=fresh.turns_generation if fresh else Generation(1),
        messages_generation=fresh.messages_generation if fresh else Generation(1),
    )


def _evolve_turn(
    state: SessionState, head: Head, event: Event, turn_id: TurnId, sequence: Sequence, at: Micros
) -> None:
    state.touched.add(turn_id)
    if isinstance(event, turn.TurnQueued):
        if event.enqueue_sequence != head.next_enqueue_sequence or turn_id in state.turns:
            raise IllegalTransition(f"turn.queued {event.enqueue_sequence} where {head.next_enqueue_sequence} is due")
        state.turns[turn_id] = new_turn(turn_id, event, sequence, at)
        head.next_enqueue_sequence = EnqueueSequence(event.enqueue_sequence + 1)
        head.queued_count += 1
        return
    subject = state.turns.get(turn_id)
    if subject is None:
        raise IllegalTransition(f"{event.type} of a turn that was never queued")
    was = subject.status
    evolve_turn(subject, event, sequence, at)
    if type(event) in OF_ATTEMPT:
        return
    if isinstance(event, turn.TurnStarted):
        if head.active_turn_id not in (None, turn_id):
            raise IllegalTransition("two active turns")
        head.active_turn_id = turn_id
        head.queued_count -= was == "queued"
        head.fence = Fence(head.fence + 1)
    elif isinstance(event, turn.TERMINAL):
        if was == "queued":
            head.queued_count -= 1
        else:
            head.active_turn_id = None
            head.tip_turn_id = turn_id
            state.claim = None
    elif isinstance(event, _HANDED_BACK):
        state.claim = None
    elif isinstance(event, turn.InterruptRequested) and event.closing:
        head.closing = True
