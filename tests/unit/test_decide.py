"""The rules of a session, decided without any store."""

from typing import Any

import pytest

from domain import commands
from domain.commands import CancelTurn, ClaimTurn, ContinueTurn, ResumeQueue, SubmitTurn
from domain.decisions import Limits, decide, wanted
from domain.decisions.decision import Decision
from domain.errors import (
    AnswerConflict,
    ForkOutOfRange,
    InputTooLarge,
    NothingToClaim,
    QueueNotPaused,
    SessionBusy,
    SessionIdTaken,
    SessionNotFound,
    TurnIdTaken,
    TurnNotTerminal,
    UndecidedAnswer,
    UnknownRequirement,
)
from domain.events.turn import TurnCompleted
from domain.ids import CommandKey, Fence, Micros, Ordinal, Sequence, SessionId, TurnId, WorkerId
from domain.parts import Answer, Requirement, TextPart
from domain.session import SessionState, evolve
from domain.turn import IllegalTransition

SESSION = SessionId("01900000-0000-7000-8000-00000000000a")
WORKER = WorkerId("01900000-0000-7000-8000-00000000000b")
LIMITS = Limits(queue_depth=5, input_bytes=100)


class Play:
    """A session in memory: each command is decided on the state that the ones before left."""

    def __init__(self) -> None:
        self.state = SessionState(session_id=SESSION, turns={})
        self.types: list[str] = []
        self.do(commands.CreateSession, agent_id="a")

    def do(self, kind: type[Any], **fields: Any) -> Decision:
        command = kind(session_id=SESSION, key=CommandKey("k"), **fields)
        decision = decide(self.state, command, Micros(1), LIMITS)
        if decision.claim is not None:
            self.state.claim = decision.claim
        self.types += [draft.data.type for draft in decision.events]
        return decision

    def submit(self, name: str, text: str = "hi", **more: Any) -> Decision:
        return self.do(SubmitTurn, turn_id=TurnId(name), input=[TextPart(text)], **more)

    def claim(self) -> Decision:
        return self.do(ClaimTurn, worker_id=WORKER)

    def finish(self, name: str, outcome: str = "completed") -> Decision:
        assert self.state.head is not None
        fence: Fence = self.state.head.fence
        return self.do(
            commands.FinishTurn,
            turn_id=TurnId(name),
            fence=fence,
            ordinal=Ordinal(1),
            outcome=outcome,
            attempt=1,
            frame=7,
        )

    def pause(self, name: str, *requirements: Requirement) -> Decision:
        assert self.state.head is not None
        return self.do(
            commands.PauseTurn,
            turn_id=TurnId(name),
            fence=self.state.head.fence,
            ordinal=Ordinal(1),
            attempt=1,
            frame=7,
            requirements=list(requirements),
        )


def test_creating_again_is_the_same_answer_and_another_agent_is_refused() -> None:
    play = Play()
    assert play.do(commands.CreateSession, agent_id="a").events == []
    with pytest.raises(SessionIdTaken):
        play.do(commands.CreateSession, agent_id="b")


def test_nothing_is_decided_for_a_session_that_is_not_there() -> None:
    command = ResumeQueue(session_id=SESSION, key=CommandKey("k"))
    with pytest.raises(SessionNotFound):
        decide(SessionState(session_id=SESSION, turns={}), command, Micros(1), LIMITS)


def test_only_the_lowest_waiting_turn_starts() -> None:
    play = Play()
    for name in "abc":
        play.submit(name)
    play.do(CancelTurn, turn_id=TurnId("a"))
    assert play.claim().events[0].turn_id == "b"
    with pytest.raises(NothingToClaim):
        play.claim()


def test_a_name_is_taken_once_and_an_input_has_a_limit() -> None:
    play = Play()
    play.submit("a", external_id="x")
    with pytest.raises(TurnIdTaken):
        play.submit("b", external_id="x")
    with pytest.raises(InputTooLarge):
        play.submit("c", "x" * 101)


def test_c05_reject_names_the_busy_turn_and_interrupt_makes_way_without_pausing_the_queue() -> None:
    play = Play()
    play.submit("a")
    with pytest.raises(SessionBusy):
        play.submit("b", if_busy="reject")
    play.claim()
    play.submit("c", if_busy="interrupt")
    assert play.types[-2:] == ["turn.queued", "turn.interrupt_requested"]
    play.finish("a")
    assert play.types[-1] == "turn.interrupted"
    assert play.claim().events[0].turn_id == "c"


def test_interrupt_ends_a_paused_turn_at_once() -> None:
    play = Play()
    play.submit("a")
    play.claim()
    play.pause("a", Requirement(tool_call_id="t", kind="approval", tool_name="n"))
    play.submit("b", if_busy="interrupt")
    assert play.types[-2:] == ["turn.queued", "turn.interrupted"]


def test_h03_the_first_answer_wins_an_equal_one_is_fine_and_a_contrary_one_is_refused() -> None:
    play = Play()
    play.submit("a")
    play.claim()
    needs = [Requirement(tool_call_id=c, kind="approval", tool_name="n") for c in "xy"]
    play.pause("a", *needs)

    def answer(**answers: Answer) -> Decision:
        return play.do(ContinueTurn, turn_id=TurnId("a"), answers=answers)

    with pytest.raises(UnknownRequirement):
        answer(z=Answer(approved=True))
    with pytest.raises(UndecidedAnswer):
        answer(x=Answer(note="hm"))
    assert len(answer(x=Answer(approved=True, by="ann", at="1")).events) == 1
    assert answer(x=Answer(approved=True, by="bob", at="2")).events == []
    with pytest.raises(AnswerConflict):
        answer(x=Answer(approved=False))
    assert [d.data.type for d in answer(y=Answer(approved=False)).events] == ["turn.answered", "turn.continued"]
    assert answer(y=Answer(approved=False)).events == []


def test_h04_a_question_that_was_answered_in_time_expires_no_more() -> None:
    play = Play()
    play.submit("a")
    play.claim()
    ends = {"x": "1970-01-01T00:00:01Z", "y": "1970-01-01T01:00:00Z"}
    play.pause("a", *(Requirement(tool_call_id=c, kind="approval", tool_name="n", expires_at=ends[c]) for c in "xy"))
    turn = play.state.turns[TurnId("a")]
    assert turn.expires_at == 1_000_000
    play.do(ContinueTurn, turn_id=TurnId("a"), answers={"x": Answer(approved=True)})
    assert play.state.turns[TurnId("a")].expires_at == 3_600_000_000
    play.do(ContinueTurn, turn_id=TurnId("a"), answers={"y": Answer(approved=True)})
    assert play.state.turns[TurnId("a")].expires_at is None


@pytest.mark.parametrize(
    ("state", "then"),
    [("completed", ["turn.completed"]), ("running", NothingToClaim), ("unknown", ["turn.started"])],
)
def test_a_runtime_is_asked_about_a_turn_that_was_handed_back(state: Any, then: Any) -> None:
    """Its work may go on elsewhere, whatever became of the worker."""
    play = Play()
    play.submit("a")
    play.claim()
    assert play.state.head is not None
    play.do(commands.ReleaseTurn, turn_id=TurnId("a"), fence=play.state.head.fence, ordinal=Ordinal(1), events=[])
    answered = commands.Answered(turn_id=TurnId("a"), state=state, output="elsewhere")
    before = len(play.types)
    if then is NothingToClaim:
        with pytest.raises(NothingToClaim):
            play.do(ClaimTurn, worker_id=WORKER, answered=answered)
    else:
        play.do(ClaimTurn, worker_id=WORKER, answered=answered)
        assert play.types[before:] == then


@pytest.mark.parametrize("outcome", ["failed", "interrupted"])
def test_the_queue_pauses_after_a_bad_end_when_something_waits(outcome: str) -> None:
    play = Play()
    play.submit("a")
    play.submit("b")
    play.claim()
    if outcome == "interrupted":
        play.do(commands.InterruptTurn, turn_id=TurnId("a"))
    play.finish("a", outcome)
    assert play.types[-1] == "session.queue_paused"
    with pytest.raises(NothingToClaim):
        play.claim()
    play.do(ResumeQueue)
    assert play.claim().events[0].turn_id == "b"
    with pytest.raises(QueueNotPaused):
        play.do(ResumeQueue)


def test_a_paused_turn_can_be_cancelled_and_the_next_starts() -> None:
    play = Play()
    play.submit("a")
    play.submit("b")
    play.claim()
    play.pause("a", Requirement(tool_call_id="x", kind="approval", tool_name="n"))
    play.do(CancelTurn, turn_id=TurnId("a"))
    started = play.claim().events[0]
    assert started.turn_id == "b"
    assert play.state.turns[TurnId("b")].parent_turn_id == "a"


def test_only_a_turn_that_ended_is_regenerated_and_forks_stay_inside_their_source() -> None:
    play = Play()
    play.submit("a")
    with pytest.raises(TurnNotTerminal):
        play.do(commands.RegenerateTurn, turn_id=TurnId("b"), source_turn_id=TurnId("a"))
    with pytest.raises(ForkOutOfRange):
        play.do(commands.ForkTurn, turn_id=TurnId("b"), source_turn_id=TurnId("a"), place="end")
    play.claim()
    play.finish("a")
    with pytest.raises(ForkOutOfRange):
        play.do(commands.ForkTurn, turn_id=TurnId("b"), source_turn_id=TurnId("a"), place="99", sequence=99)
    play.do(commands.ForkTurn, turn_id=TurnId("c"), source_turn_id=TurnId("a"), place="last_user")
    play.claim()
    assert play.state.turns[TurnId("c")].parent_turn_id == "a"


def test_a_closed_session_refuses_everything_but_closing_again() -> None:
    play = Play()
    play.submit("a")
    play.do(commands.CloseSession)
    assert play.types[-2:] == ["turn.cancelled", "session.closed"]
    assert play.do(commands.CloseSession).events == []
    with pytest.raises(SessionNotFound):
        play.submit("b")
    with pytest.raises(SessionNotFound):
        play.do(commands.CreateSession, agent_id="a")


def test_what_can_never_follow_is_an_illegal_transition() -> None:
    play = Play()
    play.submit("a")
    done = TurnCompleted(attempt=1, frame=1)
    with pytest.raises(IllegalTransition, match="queued -> completed"):
        evolve(play.state, done, TurnId("a"), Sequence(3), Micros(1))
    with pytest.raises(IllegalTransition, match="sequence 9"):
        evolve(play.state, done, TurnId("a"), Sequence(9), Micros(1))


def test_a_command_says_which_turns_it_needs() -> None:
    need = wanted(ClaimTurn(session_id=SESSION, key=CommandKey("k"), worker_id=WORKER))
    assert need.queued == 1
    assert wanted(commands.CloseSession(session_id=SESSION, key=CommandKey("k"))).all_queued
