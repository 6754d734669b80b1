"""What a line typed in a chat answers."""

from typing import Any

import pytest

from services.cli.questions import answer_of, open_ones, prompt_of


@pytest.mark.parametrize(
    ("kind", "line", "given"),
    [
        ("approval", "y", {"approved": True}),
        ("approval", " Yes ", {"approved": True}),
        ("approval", "n", {"approved": False}),
        ("approval", "no too dear ", {"approved": False, "note": "too dear"}),
        ("approval", "maybe", None),
        ("approval", "", None),
        ("input", '{"city": "Ulm"}', {"arguments": {"city": "Ulm"}}),
        ("input", "Ulm", {"arguments": {"answer": "Ulm"}}),
        ("input", "n", {"approved": False}),
        ("external", "[1, 2]", {"result": [1, 2]}),
        ("external", "done", {"result": "done"}),
        ("external", "null", {"result": "null"}),
        ("external", " ", None),
    ],
)
def test_a_line_is_an_answer_or_decides_nothing(kind: str, line: str, given: dict[str, Any] | None) -> None:
    need = {"tool_call_id": "c", "kind": kind, "tool_name": "do"}
    assert answer_of(need, line) == (None if given is None else {"tool_call_id": "c", **given})


def test_an_answer_names_the_item_of_its_question() -> None:
    need = {"tool_call_id": "c", "item_id": "i", "kind": "approval", "tool_name": "do"}
    assert answer_of(need, "y") == {"tool_call_id": "c", "item_id": "i", "approved": True}
    assert answer_of(need, "n") == {"tool_call_id": "c", "item_id": "i", "approved": False}


def test_a_prompt_shows_no_control_characters() -> None:
    assert "\x1b" not in prompt_of({"kind": "approval", "tool_name": "rm\x1b[2J"})


def test_only_open_questions_of_a_paused_turn_are_asked() -> None:
    needs = [{"tool_call_id": "a", "answer": {"approved": True}}, {"tool_call_id": "b"}]
    assert open_ones({"status": "paused", "requirements": needs}) == [{"tool_call_id": "b"}]
    assert open_ones({"status": "running", "requirements": needs}) == []
