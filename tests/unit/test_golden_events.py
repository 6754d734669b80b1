"""What was stored once is read for ever: payloads as releases wrote them, one file per (type, version), one payload a
line.

The first line of each file fills every field. Never edit a line; a new version of a type gets a new file and an
upcaster.
"""

from pathlib import Path

import msgspec
import pytest

from domain.events import registry
from domain.events.upcasting import UPCASTERS

SAMPLES = sorted((Path(__file__).parents[1] / "golden" / "events").glob("*.jsonl"))


def _named(path: Path) -> tuple[str, int]:
    type_, _, version = path.name.removesuffix(".jsonl").rpartition(".v")
    return type_, int(version)


def test_every_type_and_version_has_a_sample() -> None:
    needed = {(name, version) for name, s in registry.EVENT_TYPES.items() for version in range(1, s.schema_version + 1)}
    assert {_named(path) for path in SAMPLES} == needed
    lifted = {(name, v) for name, s in registry.EVENT_TYPES.items() for v in range(1, s.schema_version)}
    assert set(UPCASTERS) == lifted


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_a_stored_payload_is_read_whole_and_written_the_same(path: Path) -> None:
    type_, version = _named(path)
    lines = path.read_bytes().splitlines()
    for number, line in enumerate(lines):
        event = registry.decode(type_, version, line)
        assert not isinstance(event, registry.UnknownEvent)
        if version == event.schema_version:
            assert registry.encode(event) == line
        if number == 0 and version == event.schema_version:
            assert set(msgspec.json.decode(line)) == set(event.__struct_fields__) - _omitted(type_)


def _omitted(type_: str) -> set[str]:
    """Fields that have one value only, which is their default and therefore left out."""
    return {"reason"} if type_ == "turn.released" else set()


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_unknown_fields_are_ignored_on_read(path: Path) -> None:
    type_, version = _named(path)
    line = path.read_bytes().splitlines()[0]
    longer = msgspec.json.encode({**msgspec.json.decode(line), "of_a_later_release": {"x": [1]}})
    assert registry.decode(type_, version, longer) == registry.decode(type_, version, line)


def test_what_this_release_does_not_know_passes_through() -> None:
    for type_, version in (("turn.teleported", 1), ("turn.queued", 99)):
        event = registry.decode(type_, version, b'{"any":["thing"]}')
        assert isinstance(event, registry.UnknownEvent)
        assert (event.name, event.version, event.raw) == (type_, version, b'{"any":["thing"]}')
