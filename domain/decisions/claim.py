"""Starting a turn: the first time, after an answer, after a hand-back, after a death."""

import msgspec

from domain import commands, replies
from domain.decisions.decision import Decision, Draftsman, Limits
from domain.decisions.queue import settle
from domain.decisions.recovery import judge
from domain.errors import NothingToClaim
from domain.events import turn as turn_events
from domain.events.base import Event
from domain.events.item import ItemSuperseded
from domain.events.turn import StartReason
from domain.ids import Attempt, Fence, TurnId, WorkerId, frame_base
from domain.session import Claim
from domain.turn import Turn


def claim(draft: Draftsman, command: commands.ClaimTurn, limits: Limits) -> Decision:
    """At most one turn of a session is active: the active one is taken over or nothing starts."""
    active = draft.state.active()
    if active is not None:
        return _decision(draft, take_over(draft, active, command, limits))
    started = start_next(draft, command.worker_id)
    if started is None:
        raise NothingToClaim()
    return _decision(draft, started)


def take_over(
    draft: Draftsman, active: Turn, command: commands.ClaimTurn, limits: Limits
) -> tuple[replies.ClaimedTurn, Claim] | None:
    """Go on with the active turn, or seal it (None). Raises NothingToClaim where it is in good hands."""
    verdict = judge(draft.state, active, command, draft.at, limits)
    if isinstance(verdict, Event):
        draft.write(verdict, active.turn_id)
        settle(draft, active)
        return start_next(draft, command.worker_id)
    if verdict is None:
        raise NothingToClaim()
    loose = [] if active.progress is None else active.progress.loose
    if loose and verdict != "continued":
        draft.write(ItemSuperseded(item_ids=loose, attempt=active.attempt), active.turn_id)
    return _start(draft, active, command.worker_id, verdict)


def start_next(draft: Draftsman, worker_id: WorkerId) -> tuple[replies.ClaimedTurn, Claim] | None:
    """Start the lowest queued turn when the queue is open and nothing is active."""
    head = draft.head
    waiting = draft.state.next_queued()
    if waiting is None or head.queue_state != "open" or head.active_turn_id is not None:
        return None
    if head.closing or head.closed_at is not None:
        return None
    return _start(draft, waiting, worker_id, "first")


def _start(draft: Draftsman, turn: Turn, worker_id: WorkerId, reason: StartReason) -> tuple[replies.ClaimedTurn, Claim]:
    first = turn.started_at is None
    attempt = Attempt(turn.attempt if reason == "continued" else turn.attempt + 1)
    base = turn.next_frame if reason == "continued" and turn.next_frame is not None else frame_base(attempt)
    if first:
        parent = turn.forked_from.turn_id if turn.forked_from is not None else draft.head.tip_turn_id
    else:
        parent = turn.parent_turn_id
    fence = Fence(draft.head.fence + 1)
    sequence = draft.write(
        turn_events.TurnStarted(attempt=attempt, reason=reason, frame_base=base, parent_turn_id=parent),
        turn.turn_id,
        msgspec.json.encode(turn_events.StartedPrivate(fence, worker_id)),
    )
    opened = Claim(turn_id=TurnId(turn.turn_id), fence=fence, worker_id=worker_id)
    draft.state.claim = opened
    claimed = replies.ClaimedTurn(
        session_id=draft.state.session_id,
        agent_id=draft.head.agent_id,
        turn_id=turn.turn_id,
        fence=fence,
        attempt=attempt,
        reason=reason,
        frame_base=base,
        started_sequence=sequence,
        input=msgspec.Raw(turn.effective_input),
        context_version=turn.context_version,
        metadata=None if turn.metadata is None else msgspec.json.decode(turn.metadata),
        parent_turn_id=parent,
        forked_from=turn.forked_from,
        interrupt_requested=turn.interrupt_then is not None,
    )
    return claimed, opened


def _decision(draft: Draftsman, started: tuple[replies.ClaimedTurn, Claim] | None) -> Decision:
    if started is None:
        return Decision(events=draft.events, reply=replies.ClaimReply(sequence=draft.head.last_sequence))
    claimed, opened = started
    reply = replies.ClaimReply(sequence=claimed.started_sequence, claim=claimed)
    return Decision(events=draft.events, reply=reply, claim=opened)
