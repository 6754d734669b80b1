"""The recorder's table: what is shown, what is stored, in which order and with which numbers."""

import itertools
from typing import Any

import msgspec
import pytest

from domain import frames
from domain.events.base import Event
from domain.parts import Scope
from domain.runtime import RuntimeFailed
from services.worker.executor.bounds import Bounds
from services.worker.executor.recorder import Recorder

BASE = 2**32


class Desk:
    """A recorder and what came out of it."""

    def __init__(self) -> None:
        ids = (f"id-{n}" for n in itertools.count())
        self.live: list[dict[str, Any]] = []
        self.cleared: list[str] = []
        self.events: list[Event] = []
        self.private: list[bytes | None] = []
        self.recorder = Recorder(
            session_id="s",
            turn_id="t",
            attempt=1,
            frame_base=BASE,
            publish=lambda _, frame: self.live.append(msgspec.json.decode(frame)),
            roll_up=lambda _, frame: self.live.append(msgspec.json.decode(frame)),
            clear=self.cleared.append,
            new_id=lambda: next(ids),
            bounds=Bounds(),
        )

    def take(self, *given: frames.RuntimeFrame, now: float = 0.0) -> None:
        for frame in given:
            self.recorder.take(frame, now)
        self.drain()

    def drain(self) -> None:
        drafts = self.recorder.drain()
        self.recorder.committed(drafts)
        for draft in drafts:
            self.events.append(draft.data)
            self.private.append(draft.private)

    def types(self) -> list[str]:
        return [event.type for event in self.events]


CALL = frames.ToolCalled(item_id="i", tool_call_id="c", name="look", arguments={"q": 1}, idempotent=True)
START = frames.ToolStarted(item_id="i", tool_call_id="c")


def test_text_is_shown_as_it_comes_and_stored_when_it_is_whole() -> None:
    desk = Desk()
    desk.take(frames.ItemStarted(item_id="i", kind="text"), frames.ItemDelta(item_id="i", text="hello"))
    assert desk.events == []
    assert [frame["type"] for frame in desk.live] == ["item.started", "item.delta"]
    desk.take(frames.ItemEnded(item_id="i"))
    assert desk.types() == ["item.completed"]


def test_a_tool_call_is_stored_before_its_start_in_one_append() -> None:
    desk = Desk()
    desk.take(frames.Together(frames=(CALL, START)))
    assert desk.types() == ["item.completed", "tool.started"]
    assert [event.frame for event in desk.events] == [BASE + 2, BASE + 3]  # type: ignore[attr-defined]
    assert [frame["type"] for frame in desk.live] == ["item.started"]


def test_progress_is_shown_newest_first_and_takes_no_number() -> None:
    desk = Desk()
    desk.take(CALL, START)
    for now in (0.0, 0.01, 0.02):
        desk.take(frames.ToolProgressed(item_id="i", tool_call_id="c", fraction=now), now=now)
    desk.recorder.tick(0.025)
    progress = [frame["data"] for frame in desk.live if frame["type"] == "tool.progress"]
    assert [one["fraction"] for one in progress] == [0.0, 0.02]
    assert not any("frame" in one for one in progress)
    assert desk.recorder.next_frame() == BASE + 4


def test_progress_of_a_call_that_does_not_run_is_dropped() -> None:
    desk = Desk()
    late = frames.ToolProgressed(item_id="i", tool_call_id="c", text="late")
    desk.take(CALL, late, START, frames.ToolResulted(item_id="i", tool_call_id="c", output="x"), late)
    assert [frame["type"] for frame in desk.live] == ["item.started"]


def test_results_are_flushed_before_the_end() -> None:
    desk = Desk()
    desk.take(CALL, START)
    for now, text in enumerate(["a", "b"]):
        desk.take(frames.ToolResulted(item_id="i", tool_call_id="c", output=text, final=False), now=now * 0.01)
    desk.recorder.end(0.02, partial=True)
    desk.drain()
    assert [event.output for event in desk.events if event.type == "tool_result.snapshot"] == ["a", "b"]  # type: ignore[attr-defined]
    assert not desk.events[-1].final  # type: ignore[attr-defined]


def test_a_completed_turn_leaves_no_call_without_a_result() -> None:
    desk = Desk()
    desk.take(CALL, START)
    desk.recorder.seal()
    desk.recorder.end(1.0, partial=False)
    desk.drain()
    assert desk.types()[-1] == "tool_result.snapshot"
    assert desk.events[-1].final  # type: ignore[attr-defined]


def test_a_pause_leaves_a_call_that_asks_without_a_result() -> None:
    desk = Desk()
    desk.take(CALL, START)
    desk.recorder.end(1.0, partial=False)
    desk.drain()
    assert "tool_result.snapshot" not in desk.types()


def test_what_is_cut_off_is_stored_as_partial() -> None:
    desk = Desk()
    desk.take(frames.ItemStarted(item_id="i", kind="text"), frames.ItemDelta(item_id="i", text="half"))
    desk.recorder.end(1.0, partial=True)
    desk.drain()
    assert desk.events[0].partial  # type: ignore[attr-defined]
    assert desk.events[0].text == "half"  # type: ignore[attr-defined]


def test_texts_of_one_response_are_one_message_and_the_next_is_another() -> None:
    desk = Desk()
    for item_id in ("a", "b"):
        desk.take(
            frames.ItemStarted(item_id=item_id, kind="text"),
            frames.ItemDelta(item_id=item_id, text="x"),
            frames.ItemEnded(item_id=item_id),
        )
    member = Scope(component="agent", id="m", run_id="r")
    desk.take(
        frames.ItemStarted(item_id="m", kind="text", scope=member),
        frames.ItemDelta(item_id="m", text="x"),
        frames.ItemEnded(item_id="m"),
        frames.ResponseStarted(),
        frames.ItemStarted(item_id="c", kind="text"),
        frames.ItemDelta(item_id="c", text="x"),
        frames.ItemEnded(item_id="c"),
    )
    a, b, m, c = (event.message_id for event in desk.events)  # type: ignore[attr-defined]
    assert a == b
    assert len({a, m, c}) == 3


def test_private_parts_go_with_checkpoints_and_final_results_only() -> None:
    desk = Desk()
    desk.take(
        CALL,
        START,
        frames.ToolResulted(item_id="i", tool_call_id="c", output="a", final=False, private=b"early"),
        frames.ToolResulted(item_id="i", tool_call_id="c", output="b", private=b"exact"),
        frames.Checkpoint(reason="end", message_index=1, private=b"[]"),
    )
    assert dict(zip(desk.types(), desk.private, strict=True)) == {
        "item.completed": None,
        "tool.started": None,
        "tool_result.snapshot": b"exact",
        "checkpoint.reached": b"[]",
    }
    assert desk.private.count(None) == 3


@pytest.mark.parametrize("name", ["a\nid: 9", "a\r", "\u2028", "a\x85"])
def test_the_name_of_a_step_stands_in_one_line(name: str) -> None:
    desk = Desk()
    with pytest.raises(RuntimeFailed) as refused:
        desk.take(frames.StepReported(name=name, payload={}))
    assert refused.value.code == "agent_error"
    desk.take(frames.StepReported(name="Schritt 1: 漢字", payload={}))
    assert desk.types() == ["runtime.event"]


def test_a_step_that_is_too_large_says_so_instead() -> None:
    desk = Desk()
    desk.take(frames.StepReported(name="s", payload={"x": "y" * 20_000}))
    assert desk.events[0].payload == {"omitted": "too_large", "original_bytes": 20_008}  # type: ignore[attr-defined]
    desk.take(frames.StepReported(name="s", payload={"x": ("y", {1: "\0"})}))
    assert desk.events[1].payload == {"x": ["y", {"1": "\ufffd"}]}  # type: ignore[attr-defined]


def test_arguments_that_cannot_be_stored_fail_the_turn() -> None:
    desk = Desk()
    with pytest.raises(RuntimeFailed) as large:
        desk.take(msgspec.structs.replace(CALL, arguments={"x": "y" * 600_000}))
    assert large.value.code == "too_large"
    with pytest.raises(RuntimeFailed) as odd:
        desk.take(msgspec.structs.replace(CALL, arguments={"x": object()}))
    assert odd.value.code == "agent_error"


def test_usage_is_recorded_and_added_up() -> None:
    desk = Desk()
    for _ in range(2):
        desk.take(frames.UsageReported(model="m", input_tokens=3, output_tokens=4, cache_read_tokens=1))
    assert desk.types() == ["usage.recorded"] * 2
    assert desk.recorder.usage == {"requests": 2, "input_tokens": 6, "output_tokens": 8, "cache_read_tokens": 2}


def test_an_item_that_grows_is_rolled_up_every_quarter_of_a_second() -> None:
    desk = Desk()
    desk.take(frames.ItemStarted(item_id="i", kind="text"))
    for step in range(11):
        now = step * 0.1
        desk.recorder.tick(now)
        desk.take(frames.ItemDelta(item_id="i", text=f"{step} "), now=now)
    rolled = [frame["data"] for frame in desk.live if frame["type"] == "item.snapshot"]
    assert [one["next_index"] for one in rolled] == [3, 6, 9]
    assert rolled[0]["text"] == "0 1 2 "
    assert desk.recorder.due() == pytest.approx(0.9 + 0.25)
    desk.recorder.tick(1.2)
    assert desk.recorder.due() is None
    desk.take(frames.ItemEnded(item_id="i"), now=1.3)
    assert desk.cleared == ["i"]


def test_open_items_are_rolled_up_before_a_tool_may_block_the_loop() -> None:
    desk = Desk()
    desk.take(frames.ItemStarted(item_id="t", kind="text"), frames.ItemDelta(item_id="t", text="so far"))
    desk.take(CALL, START)
    assert [frame["data"]["text"] for frame in desk.live if frame["type"] == "item.snapshot"] == ["so far"]


def test_of_a_long_item_roll_ups_come_less_often() -> None:
    desk = Desk()
    desk.take(frames.ItemStarted(item_id="i", kind="text"), frames.ItemDelta(item_id="i", text="x" * 200_000))
    assert desk.recorder.due() == pytest.approx(200_008 / (256 * 1024), abs=1e-3)


def test_progress_of_a_call_is_cleared_with_its_result() -> None:
    desk = Desk()
    desk.take(CALL, START, frames.ToolProgressed(item_id="i", tool_call_id="c", fraction=0.5))
    assert desk.cleared == ["i"], "of the call itself"
    desk.take(frames.ToolResulted(item_id="i", tool_call_id="c", output="done"))
    assert desk.cleared == ["i", "i"]


def test_what_is_open_is_rolled_up_again_when_the_broker_lost_it() -> None:
    """Also an item that says nothing any more; not one that is complete."""
    desk = Desk()
    desk.take(frames.ItemStarted(item_id="silent", kind="text"), frames.ItemDelta(item_id="silent", text="so far"))
    desk.take(frames.ItemStarted(item_id="whole", kind="text"), frames.ItemDelta(item_id="whole", text="all"))
    desk.take(frames.ItemEnded(item_id="whole"))
    desk.recorder.tick(60.0)
    shown = len(desk.live)
    assert desk.recorder.due() is None, "nothing changes any more"
    desk.recorder.roll_up_again()
    (snapshot,) = desk.live[shown:]
    assert snapshot["type"] == "item.snapshot"
    assert (snapshot["data"]["item_id"], snapshot["data"]["text"]) == ("silent", "so far")
    desk.take(frames.ItemEnded(item_id="silent"))
    desk.recorder.roll_up_again()
    assert len(desk.live) == shown + 1


def test_a_message_is_bounded_and_what_is_longer_goes_on_in_the_next() -> None:
    """A message is read and written as a whole with each of its items: one of 20 MiB would take the square of that."""
    desk = Desk()
    desk.take(frames.ItemStarted(item_id="long", kind="text"), frames.ItemDelta(item_id="long", text="x" * 5 * 2**20))
    desk.take(frames.ItemEnded(item_id="long"))
    for number in range(450):
        name = f"short-{number}"
        desk.take(frames.ItemStarted(item_id=name, kind="text"), frames.ItemDelta(item_id=name, text="."))
        desk.take(frames.ItemEnded(item_id=name))
    said: dict[str, list[str]] = {}
    for event in desk.events:
        said.setdefault(event.message_id, []).append(event.text)  # type: ignore[attr-defined]
    assert sum(len(text) for texts in said.values() for text in texts) == 5 * 2**20 + 450
    assert all(sum(map(len, texts)) <= (1 + 1 / 4) * 2**20 for texts in said.values())
    assert all(len(texts) <= 201 for texts in said.values())
    assert len(said) == 7
    assert [event.message_id for event in desk.events] == [name for name, texts in said.items() for _ in texts]  # type: ignore[attr-defined]
