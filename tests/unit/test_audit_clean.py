"""What the domain decides is what the audit finds clean."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from domain import commands
from domain.ids import CommandKey, TurnId
from domain.parts import Answer, Requirement
from domain.turn_row import CHANGING, FIXED, columns
from projections.audit.models import turn_row
from tests.support.story import story
from tests.support.written import Leg, WrittenSession, audit

STEPS = (
    "submit",
    "submit",
    "submit_interrupting",
    "claim",
    "claim",
    "text",
    "two_texts",
    "tool",
    "idempotent_tool",
    "checkpoint",
    "finish",
    "finish",
    "finish_and_next",
    "fail",
    "pause",
    "answer",
    "release",
    "lose_worker",
    "interrupt",
    "cancel",
    "cancel_active",
    "resume",
    "regenerate",
    "fork",
    "repeat_submit",
    "close",
)


class Play:
    """Takes steps; what is not possible at the moment is refused by the domain and leaves nothing."""

    def __init__(self) -> None:
        self.session = WrittenSession()
        self.session.create()
        self.leg: Leg | None = None

    def take(self, step: str, number: int) -> None:
        getattr(self, f"_{step}")(number)

    def _common(self) -> dict[str, Any]:
        return {"session_id": self.session.session_id, "key": CommandKey(self.session.uuid()), "by": "ada"}

    def _turn(self, number: int, *status: str) -> TurnId | None:
        fitting = [t.turn_id for t in self.session.state.turns.values() if not status or t.status in status]
        return fitting[number % len(fitting)] if fitting else None

    def _submit(self, number: int) -> None:
        self.session.submit(f"text {number} ä", metadata={"n": number} if number % 2 else None)

    def _submit_interrupting(self, number: int) -> None:
        self.session.submit("now", if_busy="interrupt")

    def _repeat_submit(self, number: int) -> None:
        self.session.submit("busy", if_busy="reject")

    def _claim(self, number: int) -> None:
        self.leg = self.session.claim() or self.leg

    def _text(self, number: int) -> None:
        if self.leg is not None:
            self.leg.record(self.leg.text("héllo ", "wörld"), private=b"[]" if number % 3 == 0 else None)

    def _two_texts(self, number: int) -> None:
        if self.leg is not None:
            self.leg.record(*self.leg.two_texts())

    def _tool(self, number: int) -> None:
        if self.leg is not None:
            call = self.leg.call()
            self.leg.record(call, self.leg.started(call))
            self.leg.record(self.leg.result(call, 1, final=False))
            self.leg.record(self.leg.result(call, 2, final=True))

    def _idempotent_tool(self, number: int) -> None:
        if self.leg is not None:
            call = self.leg.call(idempotent=True)
            events = [call, self.leg.started(call), self.leg.started(call), self.leg.result(call, 1, final=True)]
            self.leg.record(*events)

    def _checkpoint(self, number: int) -> None:
        if self.leg is not None:
            self.leg.record(self.leg.checkpoint(), private=b'[{"model":"state"}]')

    def _finish(self, number: int) -> None:
        if self.leg is not None:
            self.leg.finish()
            self.leg = None

    def _finish_and_next(self, number: int) -> None:
        if self.leg is not None:
            reply = self.leg.finish(claim_next="0198c0de-ffff-7000-8000-000000000001")
            self.leg = None if reply is None or reply.next is None else Leg(self.session, reply.next)

    def _fail(self, number: int) -> None:
        if self.leg is not None:
            self.leg.finish("failed")
            self.leg = None

    def _pause(self, number: int) -> None:
        if self.leg is not None:
            self.leg.pause([Requirement(tool_call_id="c1", kind="approval", tool_name="lookup")])
            self.leg = None

    def _answer(self, number: int) -> None:
        turn_id = self._turn(number, "paused")
        if turn_id is not None:
            given = {"c1": Answer(approved=True, by="ada")}
            self.session.try_to(commands.ContinueTurn(**self._common(), turn_id=turn_id, answers=given))

    def _release(self, number: int) -> None:
        if self.leg is not None:
            self.leg.release()
            self.leg = None

    def _lose_worker(self, number: int) -> None:
        self.session.lose_worker()
        self.leg = None

    def _interrupt(self, number: int) -> None:
        turn_id = self._turn(number, "running")
        if turn_id is not None:
            self.session.try_to(commands.InterruptTurn(**self._common(), turn_id=turn_id))

    def _cancel(self, number: int) -> None:
        turn_id = self._turn(number, "queued")
        if turn_id is not None:
            self.session.try_to(commands.CancelTurn(**self._common(), turn_id=turn_id))

    def _cancel_active(self, number: int) -> None:
        turn_id = self._turn(number, "paused")
        if turn_id is not None:
            self.session.try_to(commands.CancelTurn(**self._common(), turn_id=turn_id))

    def _resume(self, number: int) -> None:
        self.session.try_to(commands.ResumeQueue(**self._common()))

    def _regenerate(self, number: int) -> None:
        source = self._turn(number)
        if source is not None:
            turn_id = TurnId(self.session.uuid())
            self.session.try_to(commands.RegenerateTurn(**self._common(), turn_id=turn_id, source_turn_id=source))

    def _fork(self, number: int) -> None:
        source = self._turn(number)
        if source is not None:
            turn_id = TurnId(self.session.uuid())
            place = ("end", "last_user")[number % 2]
            self.session.try_to(
                commands.ForkTurn(**self._common(), turn_id=turn_id, source_turn_id=source, place=place, input=None)
            )

    def _close(self, number: int) -> None:
        if number % 4 == 0:
            self.session.try_to(commands.CloseSession(**self._common()))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 11)), max_size=60), st.integers(1, 9))
def test_what_the_domain_decides_is_clean(steps: list[tuple[str, int]], page: int) -> None:
    play = Play()
    for step, number in steps:
        play.take(step, number)
    session = play.session
    report = audit(session.session_id, session.events, session.stored(), session.head(), page)
    assert report.findings == []
    assert report.events == report.judged_to == len(session.events)
    exported = audit(session.session_id, session.events, None, None, page)
    assert (exported.findings, exported.judged_to) == ([], len(session.events))


@pytest.mark.parametrize("step", sorted(set(STEPS)))
def test_each_step_writes_something_somewhere(step: str) -> None:
    """The property above would hold of an empty log, too: every step must be able to write."""
    before = {
        "answer": ["submit", "claim", "pause"],
        "cancel_active": ["submit", "claim", "pause"],
        "resume": ["submit", "submit", "claim", "fail"],
        "regenerate": ["submit", "claim", "finish"],
        "fork": ["submit", "claim", "finish"],
        "cancel": ["submit"],
        "claim": ["submit"],
        "submit": [],
        "submit_interrupting": [],
        "repeat_submit": [],
        "close": [],
        "lose_worker": ["submit", "claim"],
        "finish_and_next": ["submit", "submit", "claim"],
    }
    play = Play()
    for earlier in before.get(step, ["submit", "claim"]):
        play.take(earlier, 0)
    count = len(play.session.events)
    play.take(step, 0)
    if step == "lose_worker":
        play.take("claim", 0)
    assert len(play.session.events) > count


def test_a_turn_as_a_row_is_what_the_projection_writes() -> None:
    for state in story().state.turns.values():
        assert list(turn_row(state)) == [column[0] for column in columns([state], (*FIXED, *CHANGING))]
