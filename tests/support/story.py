"""One session in which everything happens that the log knows of."""

from domain import commands
from domain.ids import CommandKey, TurnId
from domain.parts import Answer, Requirement
from tests.support.written import WrittenSession


def story(number: int = 1) -> WrittenSession:
    """Turns: completed with tools (and regenerated), failed, paused and continued, cancelled, running, queued."""
    session = WrittenSession(number)
    session.create()
    first = session.submit("first ä")
    session.submit("second")
    cancelled = session.submit("third")
    session.submit("fourth", metadata={"k": 1})
    leg = session.claim()
    assert leg is not None
    said, call = leg.text("thinking ", "about it"), leg.call()
    leg.record(said, call, leg.started(call))
    leg.record(leg.result(call, 1, final=False), leg.result(call, 2, final=True))
    again = leg.call(idempotent=True)
    leg.record(again, leg.started(again), leg.result(again, 1, final=True))
    leg.record(leg.checkpoint(), private=b'[{"kind":"response"}]')
    leg.record(*leg.two_texts())
    leg.finish()
    common = {"session_id": session.session_id, "by": "ada"}
    session.try_to(
        commands.CancelTurn(**common, key=CommandKey("cancel"), turn_id=TurnId(cancelled.turn_id))  # type: ignore[arg-type]
    )
    leg = session.claim()
    assert leg is not None
    leg.record(leg.text("half an ans", partial=True))
    leg.finish("failed")
    session.try_to(commands.ResumeQueue(**common, key=CommandKey("resume")))  # type: ignore[arg-type]
    leg = session.claim()
    assert leg is not None
    leg.record(leg.text("may I?"))
    leg.pause([Requirement(tool_call_id="c1", kind="approval", tool_name="lookup")])
    answers = {"c1": Answer(approved=True, by="ada", at="2026-01-01T00:00:00.000000Z")}
    session.try_to(
        commands.ContinueTurn(**common, key=CommandKey("yes"), turn_id=leg.turn_id, answers=answers)  # type: ignore[arg-type]
    )
    leg = session.claim()
    assert leg is not None
    leg.record(leg.text("thanks"))
    leg.finish()
    again_turn = TurnId(session.uuid())
    session.try_to(
        commands.RegenerateTurn(
            **common,  # type: ignore[arg-type]
            key=CommandKey("regenerate"),
            turn_id=again_turn,
            source_turn_id=TurnId(first.turn_id),
        )
    )
    leg = session.claim()
    assert leg is not None
    leg.record(leg.text("better"))
    leg.finish()
    session.submit("sixth")
    session.submit("seventh")
    leg = session.claim()
    assert leg is not None
    leg.record(leg.text("still ", "at it"))
    return session
