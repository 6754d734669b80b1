"""Items: grouping in time, cut points, runs, and the split of long texts."""

import itertools

import msgspec
import pytest

from domain.events.item import ItemCompleted
from domain.frames import LiveFrame, LiveItemDelta, LiveItemStarted
from services.worker.executor.bounds import Bounds
from services.worker.executor.items import Items, fitting, json_size


class Desk:
    """Items with everything they need, and what came out."""

    def __init__(self, **bounds: int) -> None:
        numbers = itertools.count(101)
        ids = (f"more-{n}" for n in itertools.count())
        self.shown: list[LiveFrame] = []
        self.written: list[ItemCompleted] = []
        self.items = Items(
            1,
            number=lambda: next(numbers),
            show=lambda _, frame: self.shown.append(frame),
            write=self.written.append,
            message_of=lambda _: "m",
            new_id=lambda: next(ids),
            bounds=Bounds(**bounds),
        )

    def deltas(self) -> list[str]:
        return [frame.text for frame in self.shown if isinstance(frame, LiveItemDelta)]


def test_the_first_delta_is_shown_at_once_and_the_next_are_grouped() -> None:
    desk = Desk()
    desk.items.start("i", "text", None)
    desk.items.add("i", "a", 0.0)
    desk.items.add("i", "b", 0.010)
    desk.items.add("i", "c", 0.020)
    assert desk.deltas() == ["a"]
    assert desk.items.due() == pytest.approx(0.025)
    desk.items.tick(0.024)
    assert desk.deltas() == ["a"]
    desk.items.tick(0.025)
    assert desk.deltas() == ["a", "bc"]
    assert desk.items.due() is None
    desk.items.add("i", "d", 0.060)
    assert desk.deltas() == ["a", "bc", "d"]


def test_a_completed_item_holds_runs_and_cuts() -> None:
    desk = Desk()
    desk.items.start("i", "text", None)
    desk.items.add("i", "e\u0301😀", 0.0)
    desk.items.add("i", "漢字", 1.0)
    desk.items.end("i", 1.0)
    (item,) = desk.written
    assert item.text == "e\u0301😀漢字"
    assert item.frames.cuts == [3, 2]
    assert item.frames.runs == [(101, 4)]
    assert item.frame == 104
    assert not item.partial


def test_interleaved_items_have_broken_runs() -> None:
    desk = Desk()
    desk.items.start("a", "text", None)
    desk.items.start("b", "reasoning", None)
    for now, item_id in enumerate(["a", "b", "a", "b"]):
        desk.items.add(item_id, "x", float(now))
    desk.items.end("a", 9.0)
    desk.items.end("b", 9.0)
    a, b = desk.written
    assert a.frames.runs == [(101, 2), (105, 1), (107, 1)]
    assert b.frames.runs == [(103, 2), (106, 1), (108, 1)]
    assert (a.message_id, b.message_id) == ("m", None)


def test_an_item_without_text_never_was() -> None:
    desk = Desk()
    desk.items.start("i", "text", None)
    desk.items.add("i", "", 0.0)
    desk.items.end("i", 0.0)
    assert desk.shown == []
    assert desk.written == []


@pytest.mark.parametrize("text", ["x" * 5000, "漢" * 1700, '😀\n"' * 700, "\x01" * 900, "aé漢😀" * 500])
def test_long_texts_are_split_and_linked(text: str) -> None:
    desk = Desk(item_bytes=1000)
    desk.items.start("i", "text", None)
    for start in range(0, len(text), 777):
        desk.items.add("i", text[start : start + 777], float(start))
    desk.items.end("i", 1e9)
    assert "".join(item.text or "" for item in desk.written) == text
    assert len(desk.written) > 4
    for before, after in itertools.pairwise(desk.written):
        assert after.continues == before.item_id
        assert after.message_id == before.message_id
    for item in desk.written:
        assert json_size(item.text or "") + 8 * len(item.frames.cuts) <= 1000
        assert sum(item.frames.cuts) == len(item.text or "")
        assert sum(count for _, count in item.frames.runs) == len(item.frames.cuts) + 2
    starts = [frame.item_id for frame in desk.shown if isinstance(frame, LiveItemStarted)]
    assert starts == [item.item_id for item in desk.written]


def test_many_tiny_interleaved_deltas_stay_below_the_payload_limit() -> None:
    """Cuts and runs count too: they may weigh more than the text."""
    desk = Desk(item_bytes=4000)
    for item_id in ("a", "b"):
        desk.items.start(item_id, "text", None)
    for now in range(2000):
        desk.items.add("ab"[now % 2], "x", float(now))
    desk.items.end_all(1e9, partial=False)
    assert max(len(msgspec.json.encode(item)) for item in desk.written) < 4500


@pytest.mark.parametrize(("text", "room"), [("abc", 2), ("漢字", 3), ("漢字", 5), ('""', 3), ("😀", 3), ("abc", 0)])
def test_fitting_takes_as_much_as_there_is_room(text: str, room: int) -> None:
    length = fitting(text, room)
    assert json_size(text[:length]) <= room
    assert length == len(text) or json_size(text[: length + 1]) > room


def test_texts_of_models_are_made_safe() -> None:
    desk = Desk()
    desk.items.start("i", "text", None)
    desk.items.add("i", "a\0b\ud800", 0.0)
    desk.items.end("i", 0.0)
    assert desk.written[0].text == "a\ufffdb\ufffd"


def test_a_limit_that_nothing_fits_into_splits_by_the_character() -> None:
    """It must end, whatever somebody has set."""
    desk = Desk(item_bytes=4)
    desk.items.start("i", "text", None)
    desk.items.add("i", "abc", 0.0)
    desk.items.end("i", 0.0)
    assert [item.text for item in desk.written] == ["a", "b", "c"]
    assert [item.continues for item in desk.written] == [None, "i", "more-0"]
