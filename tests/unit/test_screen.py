"""What a terminal shows of a stream, whatever was cut and resumed."""

import io
from typing import Any

import pytest

from services.cli.api import Frame
from services.cli.screen import Screen, safe

ITEM = "01890000-0000-7000-8000-000000000001"


def frame(event: str, **data: Any) -> Frame:
    return Frame(event, {"turn_id": "t", "data": data}, "{}")


def delta(index: int, text: str) -> Frame:
    return frame("item.delta", item_id=ITEM, index=index, text=text)


def completed(text: str) -> Frame:
    return frame("item.completed", item_id=ITEM, kind="text", text=text)


def shown(*frames: Frame) -> str:
    out = io.StringIO()
    screen = Screen(out)
    for one in frames:
        screen.show(one)
    return out.getvalue()


WHOLE = [delta(0, "Hello "), delta(1, "wor"), delta(2, "ld"), completed("Hello world")]


def test_deltas_and_their_completion_show_the_text_once() -> None:
    assert shown(*WHOLE) == "Hello world\n"


@pytest.mark.parametrize("missing", range(3))
def test_a_missing_delta_is_made_good_by_the_completion(missing: int) -> None:
    assert shown(*WHOLE[:missing], *WHOLE[missing + 1 :]) == "Hello world\n"


@pytest.mark.parametrize("cut", range(4))
def test_a_doubled_delta_is_not_shown_twice(cut: int) -> None:
    assert shown(*WHOLE[:cut], *WHOLE[max(0, cut - 1) :]) == "Hello world\n"


def test_a_snapshot_in_mid_item_adds_only_what_is_new() -> None:
    snapshot = frame("item.snapshot", item_id=ITEM, kind="text", next_index=2, text="Hello wor")
    assert (
        shown(delta(0, "Hello "), snapshot, delta(1, "wor"), delta(2, "ld"), completed("Hello world"))
        == "Hello world\n"
    )


def test_a_result_does_not_cut_a_sentence() -> None:
    result = frame("tool_result.snapshot", item_id="call", output="42", final=True)
    assert shown(delta(0, "It is "), result, delta(1, "42."), completed("It is 42.")) == "It is 42.\n= 42\n"


def test_a_text_that_came_out_otherwise_is_printed_anew() -> None:
    assert shown(delta(0, "draft"), completed("final")) == "draft\nfinal\n"


def test_escape_sequences_of_a_model_do_not_reach_the_terminal() -> None:
    text = "a\x1b]52;c;aGk=\x07b\x9b31m\tc\r\nd"
    assert (
        shown(completed(text))
        == "a\N{REPLACEMENT CHARACTER}]52;c;aGk=\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}31m\tc\nd\n"
    )
    assert "\x1b" not in safe(text)


def test_ones_own_input_is_not_echoed_but_others_is() -> None:
    out = io.StringIO()
    screen = Screen(out)
    screen.mine.add("mine")
    for turn in ("mine", "theirs"):
        screen.show(Frame("turn.queued", {"turn_id": turn, "data": {"input": [{"type": "text", "text": turn}]}}, "{}"))
    assert out.getvalue() == "you> theirs\n"
