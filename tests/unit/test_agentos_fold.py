"""The AgentOS fold: the same events at the same indices, whoever watches and since when."""

import itertools
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain import frames
from domain.events import registry
from domain.events import turn as turn_events
from domain.events.base import Event
from domain.events.item import ItemCompleted, ItemSuperseded
from domain.ids import FRAMES_PER_ATTEMPT, TurnId
from domain.parts import Answer, Failure, ForkSource, Requirement, Scope, TextPart
from services.gateway.dialects.agentos.component import Component
from services.gateway.dialects.agentos.fold import ATTEMPT_BASE, Fold
from services.gateway.dialects.agentos.order import InOrder, envelope_of
from services.gateway.dialects.agentos.run import Run, Text
from services.gateway.dialects.agentos.streams import block
from services.worker.executor.bounds import Bounds
from services.worker.executor.recorder import Recorder
from tests.property.test_expand import Story
from tests.support.sse import SseParser

AGENT = Component(agent_id="echo", name="Echo")


class Wire:
    """Everything of one turn in the order in which it is published: committed envelopes and temporary frames."""

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes]] = []
        self.sequence = 0

    def commit(self, data: Event) -> None:
        self.sequence += 1
        envelope = {
            "session_id": "s",
            "sequence": self.sequence,
            "event_id": f"e{self.sequence}",
            "type": data.type,
            "schema_version": 1,
            "turn_id": "t",
            "created_at": f"2026-01-31T12:00:{self.sequence % 60:02d}.000000Z",
            "data": msgspec.Raw(registry.encode(data)),
        }
        self.published.append(("event", msgspec.json.encode(envelope)))

    def attempt(self, attempt: int, base: int | None = None) -> tuple[Recorder, list[bytes]]:
        shown: list[bytes] = []

        def publish(_: str, frame: bytes) -> None:
            shown.append(frame)
            self.published.append(("live", frame))

        recorder = Recorder(
            session_id="s",
            turn_id="t",
            attempt=attempt,
            frame_base=attempt * FRAMES_PER_ATTEMPT if base is None else base,
            publish=publish,
            roll_up=lambda item, frame: None,
            clear=lambda item: None,
            new_id=(f"{attempt}-{n}" for n in itertools.count()).__next__,
            bounds=Bounds(),
        )
        return recorder, shown

    def store(self, recorder: Recorder) -> list[Event]:
        drafts = [draft.data for draft in recorder.drain()]
        for draft in drafts:
            self.commit(draft)
        return drafts


def folded(published: Iterable[tuple[str, bytes]], component: Component = AGENT) -> tuple[Fold, list[dict[str, Any]]]:
    order, fold = InOrder("t"), Fold(Run(component, "t", "my-run", "my-session"))
    made: list[dict[str, Any]] = []
    for kind, wire in published:
        for placed in order.event(envelope_of(wire)) if kind == "event" else order.live(wire):
            made += fold.apply(placed)
    return fold, made


def committed(wire: Wire) -> list[tuple[str, bytes]]:
    return [one for one in wire.published if one[0] == "event"]


def said(events: list[dict[str, Any]]) -> str:
    """The content as a client puts it together: pieces, begun anew where a continued run says what still stands."""
    text = ""
    for event in events:
        if event["run_id"] != "my-run":
            continue
        if event["event"] == "RunContinued" and "content" in event:
            text = event["content"]
        elif event["event"] == "RunContent":
            text += event["content"]
    return text


def queued(wire: Wire) -> None:
    wire.commit(turn_events.TurnQueued(enqueue_sequence=1, input=[TextPart(text="hello")]))


def started(wire: Wire, attempt: int, reason: Any = "first", base: int | None = None) -> None:
    base = attempt * FRAMES_PER_ATTEMPT if base is None else base
    wire.commit(turn_events.TurnStarted(attempt=attempt, reason=reason, frame_base=base))


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_live_with_loss_and_replayed_are_the_same_events_at_the_same_indices(data: st.DataObject) -> None:
    wire = Wire()
    queued(wire)
    kept: list[str] = []
    attempts = data.draw(st.integers(1, 3))
    for attempt in range(1, attempts + 1):
        started(wire, attempt, "first" if attempt == 1 else "worker_lost")
        recorder, _ = wire.attempt(attempt)
        story, now, loose = Story(data), 0.0, list[str]()
        # No two items have one id.
        story._ids = itertools.count(attempt * 1_000)
        for _ in range(data.draw(st.integers(0, 25))):
            now += data.draw(st.sampled_from([0.0, 0.01, 0.05]))
            recorder.take(story.next(), now)
            recorder.tick(now)
            if data.draw(st.booleans()):
                loose += [e.item_id for e in wire.store(recorder) if isinstance(e, ItemCompleted)]
        if attempt < attempts:
            # It dies here: what is not stored never will be, and what was said since the last checkpoint is void.
            void = data.draw(st.integers(0, len(loose)))
            wire.commit(ItemSuperseded(item_ids=loose[len(loose) - void :], attempt=attempt))
            kept += loose[: len(loose) - void]
            continue
        recorder.end(now, partial=False)
        wire.store(recorder)
        end = turn_events.TurnCompleted(attempt=attempt, frame=recorder.next_frame(), output="done")
        wire.commit(end)

    replayed, events = folded(committed(wire))
    indices = [event["event_index"] for event in events]
    jumps = [b for a, b in itertools.pairwise(indices) if b != a + 1]
    assert indices[0] == 0
    assert jumps == [n * ATTEMPT_BASE for n in range(1, attempts)], "gaps at attempts only"
    assert sorted(said(events)) == sorted(
        "".join(one.text for kind, one in replayed.run.transcript() if kind == "text" and isinstance(one, Text))
    )
    if said(events):
        assert events[-1]["content"] == said(events)

    lossy = [one for one in wire.published if one[0] == "event" or data.draw(st.integers(0, 9)) > 2]
    by_index = {event["event_index"]: event for event in events}
    for watched in (wire.published, lossy):
        _, live = folded(watched)
        numbers = [event["event_index"] for event in live]
        assert numbers == sorted(set(numbers)), "upward, without repeat"
        assert set(by_index) <= set(numbers), "nothing is missing"
        for event in live:
            # Beyond the replay there is only what a dying attempt had shown and never stored.
            known = by_index.get(event["event_index"])
            assert known is not None or event["event"] == "RunContent"
            if known is not None and known != event:
                assert known["event"] == event["event"] == "RunContent"
                assert known["content"] == "", "a piece of a text that died with its attempt"
        assert said(live) == said(events)


def test_a_pause_and_its_continuation_count_on() -> None:
    wire = Wire()
    queued(wire)
    started(wire, 1)
    recorder, _ = wire.attempt(1)
    recorder.take(frames.ToolCalled(item_id="i", tool_call_id="c", name="act", arguments={"a": 1}, needs="approval"), 0)
    wire.store(recorder)
    asked = Requirement(tool_call_id="c", kind="approval", tool_name="act", arguments={"a": 1}, item_id="i")
    frame = recorder.next_frame()
    wire.commit(turn_events.TurnPaused(attempt=1, frame=frame, requirements=[asked], next_frame=frame + 1))
    wire.commit(turn_events.TurnAnswered(tool_call_id="c", answer=Answer(approved=True, note="fine")))
    wire.commit(turn_events.TurnContinued())
    started(wire, 1, "continued", frame + 1)
    recorder, _ = wire.attempt(1, frame + 1)
    recorder.take(frames.ToolStarted(item_id="i", tool_call_id="c"), 0)
    recorder.take(frames.ToolResulted(item_id="i", tool_call_id="c", output="did it", is_error=True), 0)
    wire.store(recorder)
    wire.commit(turn_events.TurnFailed(error=Failure(code="model_error", message="no"), attempt=1, frame=frame + 4))

    fold, events = folded(committed(wire))

    assert [(event["event"], event["event_index"]) for event in events] == [
        ("RunStarted", 0),
        ("RunContentCompleted", 1),
        ("RunPaused", 2),
        ("RunContinued", 3),
        ("ToolCallStarted", 4),
        ("ToolCallCompleted", 5),
        ("ToolCallError", 6),
        ("RunError", 7),
    ]
    assert events[2]["requirements"][0]["tool_execution"]["confirmed"] is None
    assert events[4]["tool"]["confirmed"] is True
    assert events[4]["tool"]["confirmation_note"] == "fine"
    assert events[7]["error_type"] == "model_provider_error"
    assert fold.run.wire_status == "ERROR"


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("agent", ["RunStarted", "RunCancelled", "RunCompleted"]),
        ("team", ["TeamRunStarted", "TeamRunCancelled", "TeamRunCompleted"]),
        ("workflow", ["WorkflowStarted", "WorkflowCancelled", "WorkflowCompleted"]),
    ],
)
def test_a_cancelled_run_ends_with_the_pair(kind: Any, names: list[str]) -> None:
    wire = Wire()
    queued(wire)
    started(wire, 1)
    wire.commit(turn_events.TurnInterrupted(by="ann", attempt=1, frame=FRAMES_PER_ATTEMPT + 1))
    fold, events = folded(committed(wire), Component(agent_id="x", name="X", component=kind))
    assert [event["event"] for event in events] == names
    assert not any("status" in event for event in events)
    assert fold.run.wire_status == "CANCELLED"


def test_runs_inside_a_cancelled_run_end_before_it_and_as_it_does() -> None:
    wire = Wire()
    queued(wire)
    started(wire, 1)
    recorder, _ = wire.attempt(1)
    one, two = (Scope(component="agent", id=n, run_id=f"{n}-run", parent_run_id="t", depth=1) for n in ("m", "n"))
    for frame in (
        frames.StepReported(name="RunStarted", payload={}, scope=one),
        frames.StepReported(name="RunCompleted", payload={"content": "done"}, scope=one),
        frames.StepReported(name="RunStarted", payload={}, scope=two),
        frames.StepReported(name="RunPaused", payload={}, scope=two),
        frames.StepReported(name="RunContinued", payload={}, scope=two),
        frames.ItemStarted(item_id="i", kind="text", scope=two),
        frames.ItemDelta(item_id="i", text="half", scope=two),
    ):
        recorder.take(frame, 0)
    recorder.end(0, partial=True)
    wire.store(recorder)
    wire.commit(turn_events.TurnInterrupted(by="ann", attempt=1, frame=recorder.next_frame()))
    fold, events = folded(committed(wire), Component(agent_id="w", name="W", component="workflow"))
    assert [(event["event"], event["run_id"], event.get("content")) for event in events[-4:]] == [
        ("RunCancelled", "n-run", "half"),
        ("RunCompleted", "n-run", "half"),
        ("WorkflowCancelled", "my-run", "Run my-run was cancelled"),
        ("WorkflowCompleted", "my-run", ""),
    ]
    assert [member.status for member in fold.run.members.values()] == ["COMPLETED", "CANCELLED"]
    live = folded(wire.published, Component(agent_id="w", name="W", component="workflow"))[1]
    assert live == events


def test_an_end_from_outside_counts_on_after_a_pause_and_from_its_own_base_after_a_death() -> None:
    wire = Wire()
    queued(wire)
    wire.commit(turn_events.TurnCancelled(by="ann"))
    assert [event["event_index"] for event in folded(committed(wire))[1]] == [0, 1], "it never started"

    wire = Wire()
    queued(wire)
    started(wire, 1)
    wire.commit(turn_events.TurnPaused(attempt=1, frame=FRAMES_PER_ATTEMPT + 1, requirements=[], next_frame=0))
    wire.commit(turn_events.TurnCancelled(by="ann"))
    assert [event["event_index"] for event in folded(committed(wire))[1]] == [0, 1, 2, 3, 4]

    wire = Wire()
    queued(wire)
    started(wire, 1)
    recorder, _ = wire.attempt(1)
    recorder.take(frames.ItemStarted(item_id="i", kind="text"), 0)
    recorder.take(frames.ItemDelta(item_id="i", text="never stored"), 0)
    wire.commit(turn_events.TurnFailed(error=Failure(code="worker_lost", message="gone")))
    assert [event["event_index"] for event in folded(committed(wire))[1]] == [0, ATTEMPT_BASE]
    live = [event["event_index"] for event in folded(wire.published)[1]]
    assert live == [0, 1, 2, ATTEMPT_BASE]


def test_a_fork_begins_as_a_continuation() -> None:
    wire = Wire()
    wire.commit(turn_events.TurnQueued(enqueue_sequence=1, input=[], forked_from=ForkSource(turn_id="old")))
    started(wire, 1)
    assert [event["event"] for event in folded(committed(wire))[1]] == ["RunContinued"]


def test_what_the_runtime_reports_is_shown_but_for_what_the_fold_makes_itself() -> None:
    wire = Wire()
    queued(wire)
    started(wire, 1)
    recorder, _ = wire.attempt(1)
    member = Scope(component="agent", id="m", run_id="mr", parent_run_id="t", depth=1)
    for frame in (
        frames.StepReported(name="RunStarted", payload={}),
        frames.StepReported(name="ModelRequestStarted", payload={"model": "m"}),
        frames.StepReported(name="SessionState", payload={"n": 1}),
        frames.StepReported(name="RunStarted", payload={"agent_name": "Member", "step_name": "one"}, scope=member),
        frames.ItemStarted(item_id="i", kind="text", scope=member),
        frames.ItemDelta(item_id="i", text="from the member", scope=member),
        frames.ItemEnded(item_id="i"),
        frames.StepReported(name="RunCompleted", payload={"content": "from the member"}, scope=member),
    ):
        recorder.take(frame, 0)
    wire.store(recorder)
    wire.commit(turn_events.TurnCompleted(attempt=1, frame=recorder.next_frame(), output="whole"))
    fold, events = folded(committed(wire), Component(agent_id="crew", name="Crew", component="team"))
    assert [event["event"] for event in events] == [
        "TeamRunStarted",
        "ModelRequestStarted",
        "RunStarted",
        "RunContent",
        "RunContent",
        "RunCompleted",
        "TeamRunContentCompleted",
        "TeamRunCompleted",
    ]
    assert events[4] | {"content": "from the member", "run_id": "mr", "parent_run_id": "my-run"} == events[4]
    assert events[4]["agent_name"] == "Member"
    assert events[4]["step_name"] == "one"
    assert fold.run.session_state == {"n": 1}
    assert events[-1]["content"] == "whole"
    assert TurnId("t") == fold.run.turn_id


def test_a_name_with_a_line_break_stays_in_its_line() -> None:
    """Runtimes name what they report; in the log there may be names of a release that let them break lines."""
    wire = block({"event": "a\r\nid: 99\n\nevent: b", "event_index": 7})
    (frame,) = SseParser().feed(wire)
    assert (frame.id, frame.event) == ("7", "a\\r\\nid: 99\\n\\nevent: b")
