"""docs/events.md names every field of every event and temporary frame, and none that does not exist."""

import re
from pathlib import Path

import msgspec
import pytest

from domain import frames, parts
from domain.events import item, registry
from domain.events.base import ExecutorEvent

TEXT = (Path(__file__).parents[2] / "docs" / "events.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `([a-z_.]+)` \| (.*) \|$", TEXT, re.MULTILINE))
OF_THE_EXECUTION = set(ExecutorEvent.__struct_fields__)
LIVE = (frames.LiveItemStarted, frames.LiveItemDelta, frames.LiveItemSnapshot, frames.LiveToolProgress)


def named(text: str) -> set[str]:
    """The words in `code` quotes, also those of `{a, b?}`."""
    return {word.rstrip("?") for quoted in re.findall(r"`([^`]+)`", text) for word in re.findall(r"[a-z_]+\??", quoted)}


@pytest.mark.parametrize("struct", registry.EVENT_TYPES.values(), ids=lambda struct: struct.type)
def test_every_field_of_an_event_is_named(struct: type[msgspec.Struct]) -> None:
    fields = set(struct.__struct_fields__)
    if issubclass(struct, ExecutorEvent):
        paragraph = re.search(r"Events that the execution of a turn writes \(([^)]*)\)", TEXT)
        assert paragraph is not None
        assert f"`{struct.type}`" in paragraph[1]
        fields -= OF_THE_EXECUTION
    assert fields <= named(ROWS[struct.type]), fields - named(ROWS[struct.type])  # type: ignore[attr-defined]


@pytest.mark.parametrize("struct", LIVE, ids=lambda struct: struct.type)
def test_every_field_of_a_temporary_frame_is_named(struct: type[frames.LiveFrame]) -> None:
    fields = set(struct.__struct_fields__) - {"attempt", "scope"}
    assert fields == named(ROWS[struct.type]) - {"with"}


@pytest.mark.parametrize(
    ("struct", "where"),
    [
        (parts.Requirement, r"- \*\*Requirement\*\*: ((?:.|\n  )*)"),
        (parts.Answer, r"- \*\*Answer\*\*: (.*)"),
        (parts.Scope, r"`scope` (.*)"),
        (item.ToolCallData, r"`tool_call\?` (.*)"),
        (parts.ForkSource, r"`forked_from\?` (.*)"),
        (parts.Failure, r"`error` (.*)"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_field_inside_an_event_is_named(struct: type[msgspec.Struct], where: str) -> None:
    found = re.search(where, TEXT)
    assert found is not None
    assert set(struct.__struct_fields__) <= named(found[1])
