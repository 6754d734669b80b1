"""Random commands against the memory store: whatever the order, what is written keeps every rule.

Judged from outside by tests/support/checker.py, which knows nothing of the code, and by a second fold of the log.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from domain import commands, replies
from domain.errors import IllegalEvents, Rejection
from domain.ids import Ordinal, SessionId, TurnId, WorkerId
from domain.parts import Answer, Failure, Requirement
from domain.ports import FeedPosition
from domain.session import SessionState, evolve
from tests.support.checker import SessionCheck
from tests.support.stand import Stand, memory_stand

T = TypeVar("T")


class Queue(RuleBasedStateMachine):
    """Two sessions, two workers, everything that people and workers may do, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.stand: Stand = memory_stand()
        self.sessions: list[SessionId] = []
        self.workers: list[WorkerId] = []
        self.turns: list[tuple[SessionId, TurnId]] = []
        self.claims: list[replies.ClaimedTurn] = []
        self.ordinals: dict[tuple[str, int], int] = {}
        self.statuses: dict[str, str] = {}

    def teardown(self) -> None:
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result, or None where the command was refused, which is always allowed."""
        try:
            return self.loop.run_until_complete(work)
        except IllegalEvents:
            raise
        except Rejection:
            return None

    @initialize()
    def begin(self) -> None:
        for _ in range(2):
            self.sessions.append(self.loop.run_until_complete(self.stand.create()))
            self.workers.append(self.loop.run_until_complete(self.stand.worker()))

    @rule(session=st.integers(0, 1), if_busy=st.sampled_from(["queue", "reject", "interrupt"]))
    def submit(self, session: int, if_busy: str) -> None:
        command = self.stand.submission(self.sessions[session], if_busy=if_busy)
        if self.run(self.stand.pipeline.execute(command)) is not None:
            self.turns.append((command.session_id, command.turn_id))

    @rule(session=st.integers(0, 1), worker=st.integers(0, 1))
    def claim(self, session: int, worker: int) -> None:
        command = commands.ClaimTurn(
            session_id=self.sessions[session], key=self.stand.key(), worker_id=self.workers[worker]
        )
        reply = self.run(self.stand.run(command, replies.ClaimReply))
        if reply is not None and reply.claim is not None:
            self.claims.append(reply.claim)

    def _ordinal(self, claim: replies.ClaimedTurn) -> Ordinal:
        place = (claim.turn_id, claim.fence)
        self.ordinals[place] = self.ordinals.get(place, 0) + 1
        return Ordinal(self.ordinals[place])

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), ending=st.sampled_from(["completed", "failed", "interrupted"]), chained=st.booleans())
    def finish(self, data: st.DataObject, ending: str, chained: bool) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        error = Failure(code="agent_error", message="no") if ending == "failed" else None
        ordinal = self._ordinal(claim)
        frame = claim.frame_base + 100 * ordinal
        worker = self.workers[0] if chained else None
        command = commands.FinishTurn(
            session_id=SessionId(claim.session_id),
            key=self.stand.key(),
            turn_id=TurnId(claim.turn_id),
            fence=self.stand.finish_of(claim).fence,
            ordinal=ordinal,
            outcome=ending,  # type: ignore[arg-type]
            error=error,
            attempt=claim.attempt,
            frame=frame,
            claim_next=worker,
        )
        reply = self.run(self.stand.run(command, replies.ExecutorReply))
        if reply is not None and reply.next is not None:
            self.claims.append(reply.next)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def record(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        ordinal = self._ordinal(claim)
        drafts = [self.stand.text(claim, "some text", 100 * ordinal)]
        self.run(self.stand.record(claim, drafts, ordinal))

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def pause(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        ordinal = self._ordinal(claim)
        asked = [Requirement(tool_call_id=f"c{ordinal}", kind="approval", tool_name="t")]
        command = commands.PauseTurn(
            session_id=SessionId(claim.session_id),
            key=self.stand.key(),
            turn_id=TurnId(claim.turn_id),
            fence=self.stand.finish_of(claim).fence,
            ordinal=ordinal,
            attempt=claim.attempt,
            frame=claim.frame_base + 100 * ordinal,
            requirements=asked,
        )
        self.run(self.stand.pipeline.execute(command))

    @precondition(lambda self: self.turns)
    @rule(data=st.data(), what=st.sampled_from(["cancel", "interrupt", "answer", "regenerate"]))
    def control(self, data: st.DataObject, what: str) -> None:
        session, turn = data.draw(st.sampled_from(self.turns))
        fields: dict[str, Any] = {"session_id": session, "key": self.stand.key()}
        command: commands.Command
        if what == "cancel":
            command = commands.CancelTurn(turn_id=turn, **fields)
        elif what == "interrupt":
            command = commands.InterruptTurn(turn_id=turn, **fields)
        elif what == "answer":
            answers = {f"c{n}": Answer(approved=True) for n in range(1, 9)}
            call = data.draw(st.sampled_from(sorted(answers)))
            command = commands.ContinueTurn(turn_id=turn, answers={call: answers[call]}, **fields)
        else:
            fresh = TurnId(self.stand.ids.uuid7())
            command = commands.RegenerateTurn(turn_id=fresh, source_turn_id=turn, **fields)
        self.run(self.stand.pipeline.execute(command))

    @rule(session=st.integers(0, 1))
    def resume(self, session: int) -> None:
        command = commands.ResumeQueue(session_id=self.sessions[session], key=self.stand.key())
        self.run(self.stand.pipeline.execute(command))

    @rule(worker=st.integers(0, 1))
    def worker_dies(self, worker: int) -> None:
        self.loop.run_until_complete(self.stand.leases.end(self.workers[worker]))
        self.workers[worker] = self.loop.run_until_complete(self.stand.worker())

    @rule(seconds=st.floats(-10, 10))
    def time_passes(self, seconds: float) -> None:
        assert self.stand.clock is not None
        if seconds < 0:
            self.stand.clock.set_back(-seconds)
        else:
            self.stand.clock.advance(seconds)

    @precondition(lambda self: len(self.turns) > 5)
    @rule(session=st.integers(0, 1))
    def close(self, session: int) -> None:
        command = commands.CloseSession(session_id=self.sessions[session], key=self.stand.key())
        self.run(self.stand.pipeline.execute(command))

    @invariant()
    def the_log_keeps_every_rule(self) -> None:
        for session in self.sessions:
            events = self.loop.run_until_complete(self.stand.events(session))
            check, state = SessionCheck(session), SessionState(session_id=session, turns={})
            for event in events:
                check.row({name: getattr(event, name) for name in event.__struct_fields__}, event.created_at)
                evolve(state, event.event(), event.turn_id, event.sequence, event.created_at)
            assert check.end(all_terminal=False) == []
            self._equals_the_head(session, state)

    def _equals_the_head(self, session: SessionId, state: SessionState) -> None:
        head = self.loop.run_until_complete(self.stand.store.heads([session]))[session]
        folded = state.head
        assert folded is not None
        folded.head_hash = head.head_hash
        assert folded == head
        active = [turn for turn in state.turns.values() if turn.status in ("running", "paused")]
        assert [turn.turn_id for turn in active] == ([head.active_turn_id] if head.active_turn_id else [])
        assert head.queued_count == sum(turn.status == "queued" for turn in state.turns.values())
        for turn in state.turns.values():
            before = self.statuses.get(turn.turn_id)
            if before in ("completed", "failed", "interrupted", "cancelled"):
                assert turn.status == before
            self.statuses[turn.turn_id] = turn.status

    @invariant()
    def the_feed_has_everything_once(self) -> None:
        entries = self.loop.run_until_complete(self.stand.feed.read(FeedPosition(), 100_000))
        seen: dict[str, int] = {}
        for _, event in entries:
            assert event.sequence == seen.get(event.session_id, 0) + 1
            seen[event.session_id] = event.sequence
        for session in self.sessions:
            assert seen[session] == len(self.loop.run_until_complete(self.stand.events(session)))


TestQueue = Queue.TestCase
TestQueue.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
