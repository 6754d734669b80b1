"""Invariant 10: what viewers saw live is what the log gives back, to the byte, with parallel tools, interleaved items,
several speakers and any text."""

import itertools
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from domain import frames
from domain.events import registry
from domain.events.envelope import Draft, StoredEvent, envelope_of
from domain.events.item import ItemCompleted
from domain.events.turn import StartReason, TurnCompleted, TurnStarted
from domain.expand import expand
from domain.ids import EventId, Micros, Sequence, SessionId, TurnId
from domain.parts import Scope
from projections.viewing import Viewing
from services.worker.executor.bounds import Bounds
from services.worker.executor.recorder import Recorder

SCOPES = (None, Scope(component="agent", id="m", run_id="r1", depth=1))
TEXT = st.text(
    st.one_of(
        st.characters(codec="utf-8"),
        st.sampled_from('漢字かなé\u0301👩‍👩‍👧\r\n\u2028\0"\\'),
        st.just("\ud800"),
    ),
    max_size=60,
)


class Log:
    """A turn's events as they would be stored."""

    def __init__(self) -> None:
        self.events: list[StoredEvent] = []

    def append(self, draft: Draft) -> None:
        sequence = len(self.events) + 1
        self.events.append(
            StoredEvent(
                session_id=SessionId("s"),
                sequence=Sequence(sequence),
                event_id=EventId(f"e{sequence}"),
                type=draft.data.type,
                schema_version=1,
                turn_id=draft.turn_id,
                created_at=Micros(0),
                payload=registry.encode(draft.data),
                private=draft.private,
                salt=None,
                payload_digest=b"",
                private_digest=None,
                metadata=b"{}",
                hash=b"",
            )
        )


class Story:
    """Draws what a runtime does next, out of what makes sense now."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data
        self._ids = itertools.count()
        self._open: list[str] = []
        self._called: list[str] = []
        self._running: list[str] = []

    def next(self) -> frames.RuntimeFrame:
        choices = ["start", "call", "step", "usage", "response", "checkpoint"]
        choices += ["delta"] * 6 + ["end"] if self._open else []
        choices += ["run"] if self._called else []
        choices += ["progress", "result", "final"] if self._running else []
        match self._data.draw(st.sampled_from(choices)):
            case "start":
                self._open.append(f"i{next(self._ids)}")
                kind: Any = self._data.draw(st.sampled_from(["text", "reasoning"]))
                return frames.ItemStarted(
                    item_id=self._open[-1], kind=kind, scope=self._data.draw(st.sampled_from(SCOPES))
                )
            case "delta":
                return frames.ItemDelta(
                    item_id=self._data.draw(st.sampled_from(self._open)), text=self._data.draw(TEXT)
                )
            case "end":
                return frames.ItemEnded(item_id=self._out_of(self._open))
            case "call":
                self._called.append(f"i{next(self._ids)}")
                return frames.ToolCalled(
                    item_id=self._called[-1], tool_call_id="c", name="t", arguments={"a": self._data.draw(TEXT)}
                )
            case "run":
                self._running.append(self._out_of(self._called))
                return frames.ToolStarted(item_id=self._running[-1], tool_call_id="c")
            case "progress":
                return frames.ToolProgressed(item_id=self._running[0], tool_call_id="c", text="…")
            case "result" | "final" as which:
                final = which == "final"
                item_id = self._out_of(self._running) if final else self._data.draw(st.sampled_from(self._running))
                return frames.ToolResulted(item_id=item_id, tool_call_id="c", output=self._data.draw(TEXT), final=final)
            case "step":
                return frames.StepReported(name="s", payload={"x": 1})
            case "usage":
                return frames.UsageReported(model="m", input_tokens=1)
            case "response":
                return frames.ResponseStarted()
            case _:
                return frames.Checkpoint(reason="tool_batch", message_index=0, private=b"[]")

    def _out_of(self, ids: list[str]) -> str:
        chosen = self._data.draw(st.sampled_from(ids))
        ids.remove(chosen)
        return chosen


def rolled_up(frame: bytes, live: list[bytes]) -> None:
    """A roll-up holds exactly what was shown of its item before it, frame numbers and cuts included."""
    said = msgspec.json.decode(frame)
    if said["type"] != "item.snapshot":
        return
    data = said["data"]
    place = (data["item_id"], data["attempt"])
    decoded = [msgspec.json.decode(one) for one in live]
    shown = [one for one in decoded if (one["data"]["item_id"], one["data"]["attempt"]) == place]
    deltas = [one["data"] for one in shown if one["type"] == "item.delta"]
    assert [one["data"]["frame"] for one in shown] == [
        first + offset for first, count in data["frames"]["runs"] for offset in range(count)
    ]
    assert [len(delta["text"]) for delta in deltas] == data["frames"]["cuts"]
    assert "".join(delta["text"] for delta in deltas) == data["text"]
    assert data["next_index"] == len(deltas) > 0


@settings(max_examples=150, deadline=None)
@given(data=st.data(), attempts=st.integers(1, 2), item_bytes=st.sampled_from([200, 256 * 1024]))
def test_expand_gives_back_the_live_frames(data: st.DataObject, attempts: int, item_bytes: int) -> None:
    log, live = Log(), list[bytes]()
    ids = itertools.count()
    dead: dict[int, bool] = {}
    for attempt in range(1, attempts + 1):
        base = attempt * 2**32
        reason: StartReason = "first" if attempt == 1 else "worker_lost"
        log.append(Draft(TurnStarted(attempt=attempt, reason=reason, frame_base=base), TurnId("t")))
        recorder = Recorder(
            session_id="s",
            turn_id="t",
            attempt=attempt,
            frame_base=base,
            publish=lambda _, frame: live.append(frame),
            roll_up=lambda _, frame: rolled_up(frame, live),
            clear=lambda _: None,
            new_id=lambda: f"n{next(ids)}",
            bounds=Bounds(item_bytes=item_bytes),
        )
        story, now = Story(data), 0.0
        for _ in range(data.draw(st.integers(0, 40))):
            recorder.take(story.next(), now)
            now += data.draw(st.sampled_from([0.0, 0.01, 0.3]))
            if data.draw(st.booleans()):
                recorder.tick(now)
            for draft in recorder.drain():
                log.append(draft)
        # Killed: what is open, and what waits for its commit, is lost with it.
        dead[attempt] = attempt < attempts and data.draw(st.booleans())
        if not dead[attempt]:
            recorder.end(now, partial=attempt < attempts)
            for draft in recorder.drain():
                log.append(draft)
        last = recorder.next_frame()
    log.append(Draft(TurnCompleted(attempt=attempts, frame=last), TurnId("t")))

    given_back = expand(log.events)
    temporary = [frame for frame in given_back if frame.sequence is None]
    kept = set()
    for event in log.events:
        said = event.event()
        if isinstance(said, ItemCompleted):
            kept.add((said.attempt, said.item_id))

    def in_the_log(frame: bytes) -> bool:
        """All but a tool's progress, and what a dead attempt had shown of items that it never committed."""
        seen = msgspec.json.decode(frame)
        place = (seen["data"]["attempt"], seen["data"]["item_id"])
        return seen["type"] != "tool.progress" and (place in kept or not dead[seen["data"]["attempt"]])

    shown = [msgspec.json.decode(frame)["data"] for frame in live]
    order = [(one["attempt"], one["frame"]) for one in shown if "frame" in one]
    assert order == sorted(order)
    assert [frame.wire for frame in temporary] == [frame for frame in live if in_the_log(frame)]
    committed = [frame for frame in given_back if frame.sequence is not None]
    assert [frame.wire for frame in committed] == [envelope_of(event) for event in log.events]
    for attempt in range(1, attempts + 1):
        numbers = [frame.frame - attempt * 2**32 for frame in given_back if frame.attempt == attempt]
        assert numbers == sorted(numbers)
        assert dead[attempt] or numbers == list(range(len(numbers)))
    # `turnlog replay` shows the same, page by page.
    viewing = Viewing()
    replayed = [seen for event in log.events for seen in viewing.take(event)] + list(viewing.rest())
    assert [seen.wire for seen in replayed if seen.sequence is None] == [frame.wire for frame in temporary]
    assert sorted(seen.wire for seen in replayed) == sorted(frame.wire for frame in given_back)
    assert [seen.sequence for seen in replayed if seen.sequence is not None] == [e.sequence for e in log.events]
