"""A copy of a session's ended turns is a session like any other: clean for the audit, and it tells the same."""

import msgspec
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from domain import commands
from domain.copying import Copyist, copied_id
from domain.events import turn
from domain.events.envelope import StoredEvent
from domain.expand import expand
from domain.history import past_of, segments
from domain.ids import CommandKey, EnqueueSequence, Sequence, SessionId, TurnId, is_uuid
from domain.turn import Turn
from projections.audit import Finding
from tests.support.story import story
from tests.support.written import WrittenSession, audit
from tests.unit.test_audit_clean import STEPS, Play


def findings(session: WrittenSession) -> list[Finding]:
    return audit(session.session_id, session.events, session.stored(), session.head()).findings


def of_turn(session: WrittenSession, turn_id: str) -> list[StoredEvent]:
    return [event for event in session.events if event.turn_id == turn_id]


def copy_of(source: WrittenSession, upto: int | None = None, pieces: int = 500) -> WrittenSession:
    """By the command, some turns at a time; empty where nothing can be copied."""
    target = WrittenSession(2)
    target.create()
    last = Sequence(len(source.events) if upto is None else upto)
    copyist = Copyist(source.session_id, target.session_id, "source", Sequence(2))
    for subject in sorted(source.state.turns.values(), key=lambda one: one.enqueue_sequence):
        drafts = copyist.copied(of_turn(source, subject.turn_id), last)
        if not drafts:
            continue
        first = len(target.events) + 1
        command = commands.CopyTurns(
            session_id=target.session_id,
            key=CommandKey(f"copy:{first}"),
            source_session_id=source.session_id,
            first=first,
            events=drafts,
        )
        assert target.try_to(command) is not None
    return target


def told(session: WrittenSession, subject: Turn) -> list[bytes]:
    """What a viewer saw of a turn, without ids that differ."""
    frames = [frame.wire for frame in expand(of_turn(session, subject.turn_id)) if frame.sequence is None]
    ids = (session.session_id.encode(), subject.turn_id.encode())
    return [frame.replace(ids[0], b"session").replace(ids[1], b"turn") for frame in frames]


def past(session: WrittenSession, subject: Turn) -> list[tuple[EnqueueSequence, list[bytes]]]:
    """Of each turn that the model was told of, its place and what of its state."""
    turns = session.state.turns
    chain = [subject]
    while (parent := chain[-1].parent_turn_id) is not None:
        chain.append(turns[parent])
    states = [event for event in session.events if event.turn_id is not None]
    return [(turns[one.turn_id].enqueue_sequence, one.messages) for one in past_of(segments(chain), states)]


LIVES = (
    "submit submit claim text tool checkpoint finish_and_next two_texts finish regenerate claim text finish fork claim"
    " finish",
    "submit claim idempotent_tool checkpoint text lose_worker claim tool finish submit claim fail submit resume claim"
    " finish",
    "submit claim text pause answer claim text release claim finish submit submit cancel submit_interrupting claim"
    " finish",
    "submit claim pause cancel_active submit claim text interrupt finish regenerate claim text finish regenerate claim"
    " finish",
)


def life(steps: str) -> list[tuple[str, int]]:
    return [(step, 0) for step in steps.split()]


@example(life(LIVES[0]))
@example(life(LIVES[1]))
@example(life(LIVES[2]))
@example(life(LIVES[3]))
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9)), max_size=40))
def test_a_copy_is_clean_and_tells_the_same(steps: list[tuple[str, int]]) -> None:
    play = Play()
    for step, number in steps:
        play.take(step, number)
    source = play.session
    copy = copy_of(source)
    assert findings(copy) == []
    ended = [one for one in source.state.turns.values() if one.terminal]
    copies = sorted(copy.state.turns.values(), key=lambda one: one.enqueue_sequence)
    assert [one.turn_id for one in copies] == [
        copied_id(copy.session_id, one.turn_id) for one in sorted(ended, key=lambda one: one.enqueue_sequence)
    ]
    places = {
        one.enqueue_sequence: number for number, one in enumerate(sorted(ended, key=lambda o: o.enqueue_sequence), 1)
    }
    for subject in ended:
        other = copy.state.turns[copied_id(copy.session_id, subject.turn_id)]
        for name in (
            "status",
            "attempt",
            "input",
            "rewritten_input",
            "output",
            "error",
            "usage",
            "deaths",
            "context_version",
        ):
            assert getattr(other, name) == getattr(subject, name), name
        assert told(copy, other) == told(source, subject)
        assert past(copy, other) == [(places[place], messages) for place, messages in past(source, subject)]
        assert (other.superseded_by is None) == (subject.superseded_by is None)
    # It goes on, as what it is a copy of would.
    copy.submit("more")
    leg = copy.claim()
    assert leg is not None
    leg.finish()
    assert findings(copy) == []


def test_these_lives_have_everything_in_them() -> None:
    """The property would hold of turns to which nothing happens, too."""
    seen: set[str] = set()
    marks = 0
    for steps in LIVES:
        play = Play()
        for step, number in life(steps):
            play.take(step, number)
        copy = copy_of(play.session)
        seen |= {event.type for event in copy.events}
        marks += sum(one.superseded_by is not None and one.forked_from is None for one in copy.state.turns.values())
    assert marks
    assert seen >= {
        *("turn.released", "turn.paused", "turn.answered", "turn.continued", "turn.superseded", "turn.cancelled"),
        *("turn.failed", "turn.interrupted", "turn.completed", "item.superseded", "checkpoint.reached"),
        *("tool.started", "tool_result.snapshot", "turn.interrupt_requested"),
    }


def test_what_has_not_ended_by_then_is_not_copied_and_a_second_try_is_the_same() -> None:
    source = story()
    whole = copy_of(source)
    assert len(whole.events) > 20
    again = copy_of(source)
    assert [(e.payload, e.private, e.turn_id) for e in whole.events] == [
        (e.payload, e.private, e.turn_id) for e in again.events
    ]
    ends = [event.sequence for event in source.events if isinstance(event.event(), turn.TERMINAL)]
    for number, end in enumerate(ends):
        assert len(copy_of(source, end - 1).state.turns) == number
        assert len(copy_of(source, end).state.turns) == number + 1
        assert findings(copy_of(source, end)) == []


def sources(session: WrittenSession) -> list[object]:
    queued = [data for event in session.events if isinstance(data := event.event(), turn.TurnQueued)]
    return [(one.metadata or {}).get("copied_from") for one in queued]


def test_names_and_jobs_stay_with_the_source() -> None:
    source = story()
    for event in copy_of(source).events:
        data = event.event()
        assert not event.type.startswith("hook.")
        if isinstance(data, turn.TurnQueued):
            assert (data.idempotency_key, data.external_id) == (None, None)
            assert (data.metadata or {})["copied_from"]["session"] == "source"
    # Of a copy of a copy it is the first source that is told.
    first = copy_of(source)
    second = copy_of(first)
    assert sources(first) == sources(second)


def test_private_state_names_the_copy() -> None:
    source = WrittenSession()
    source.create()
    reply = source.submit()
    leg = source.claim()
    assert leg is not None
    leg.record(leg.checkpoint(), private=f'{{"run_id":"{reply.turn_id}","session_id":"{source.session_id}"}}'.encode())
    leg.finish()
    copy = copy_of(source)
    (kept,) = [event.private for event in copy.events if event.type == "checkpoint.reached"]
    assert msgspec.json.decode(kept or b"") == {
        "run_id": copied_id(copy.session_id, reply.turn_id),
        "session_id": copy.session_id,
    }


def test_an_erased_turn_is_not_copied() -> None:
    source = WrittenSession()
    source.create()
    for _ in range(2):
        source.submit()
        leg = source.claim()
        assert leg is not None
        leg.record(leg.text("said"))
        leg.finish()
    (first, second) = source.state.turns
    source.events = [
        msgspec.structs.replace(event, salt=None) if event.turn_id == first else event for event in source.events
    ]
    copy = copy_of(source)
    assert list(copy.state.turns) == [copied_id(copy.session_id, second)]
    assert copy.state.turns[copied_id(copy.session_id, second)].parent_turn_id is None
    assert findings(copy) == []


def test_nobody_can_copy_an_open_turn_or_into_another_place() -> None:
    source = story()
    copyist = Copyist(source.session_id, SessionId("x"), "source", Sequence(2))
    (drafts, *_) = [
        found for one in source.state.turns if (found := copyist.copied(of_turn(source, one), Sequence(10**9)))
    ]
    target = WrittenSession(2)
    target.create()
    fields = {"session_id": target.session_id, "source_session_id": source.session_id, "key": CommandKey("k")}
    for first, events in ((3, drafts), (2, drafts[:-1]), (2, drafts[:1])):
        assert target.try_to(commands.CopyTurns(**fields, first=first, events=events)) is None  # type: ignore[arg-type]
    assert target.try_to(commands.CopyTurns(**fields, first=2, events=drafts)) is not None  # type: ignore[arg-type]


def test_copied_ids_are_ids() -> None:
    source, target = TurnId("0198c0de-0001-7000-8000-00000000000a"), SessionId("0198c0de-0002-7000-8000-00000000000b")
    made = copied_id(target, source)
    assert is_uuid(made)
    assert (made[:13], made[14]) == (source[:13], "7")
    assert made == copied_id(target, source)
    assert made != copied_id(SessionId(source), source)
