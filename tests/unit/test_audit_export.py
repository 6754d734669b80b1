"""An export can be checked by a stranger: here by one who has read docs/audit.md and nothing else of Turnlog."""

import hashlib
import json
import random
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from domain.ids import SessionId
from projections.audit import RULES, Anchored, SessionReport
from projections.audit.export import audit_export, export_line, parse_line
from tests.support.story import story
from tests.support.written import resealed

WHOLE = story()
LINES = [export_line(event) for event in WHOLE.events]


class Stranger:
    """Written from the text of docs/audit.md. `wrong` are the numbers of lines that do not fit."""

    def __init__(self, lines: list[bytes]) -> None:
        self.wrong: list[int] = []
        previous = bytes(32)
        for number, line in enumerate(lines, 1):
            found = json.loads(line)
            data, metadata = self._exact(line.decode())
            fits = found["sequence"] == number
            if found["salt"] is not None:
                digest = hashlib.sha256(bytes.fromhex(found["salt"]) + data).hexdigest()
                fits = fits and digest == found["payload_digest"]
            since = datetime.fromisoformat(found["created_at"]) - datetime(1970, 1, 1, tzinfo=UTC)
            fields = [
                previous,
                found["session_id"].encode(),
                struct.pack(">q", found["sequence"]),
                found["event_id"].encode(),
                found["type"].encode(),
                struct.pack(">q", found["schema_version"]),
                found["turn_id"].encode() if "turn_id" in found else None,
                struct.pack(">q", since // timedelta(microseconds=1)),
                bytes.fromhex(found["payload_digest"]),
                bytes.fromhex(found["private_digest"]) if found["private_digest"] is not None else None,
                metadata,
            ]
            hashed = hashlib.sha256()
            for field in fields:
                hashed.update(b"\xff\xff\xff\xff" if field is None else struct.pack(">I", len(field)) + field)
            if not fits or hashed.hexdigest() != found["hash"]:
                self.wrong.append(number)
            previous = bytes.fromhex(found["hash"])

    @staticmethod
    def _exact(line: str) -> tuple[bytes, bytes]:
        """The exact texts of `data` and `metadata`."""
        begin = line.index(',"data":') + len(',"data":')
        _, end = json.JSONDecoder().raw_decode(line, begin)
        assert line.startswith(',"metadata":', end)
        after = end + len(',"metadata":')
        _, last = json.JSONDecoder().raw_decode(line, after)
        return line[begin:end].encode(), line[after:last].encode()


def rules(report: SessionReport) -> list[tuple[str, int]]:
    return [(finding.rule, finding.sequence) for finding in report.findings]


def test_a_line_gives_back_the_event_without_its_private_part() -> None:
    for event, line in zip(WHOLE.events, LINES, strict=True):
        parsed = parse_line(line)
        assert (parsed.payload, parsed.hash, parsed.private_digest) == (event.payload, event.hash, event.private_digest)
        assert parsed.private is None
        assert b"response" not in line


def test_a_clean_export_is_clean_for_us_and_for_a_stranger() -> None:
    report = audit_export(LINES)
    assert (rules(report), report.events, report.judged_to) == ([], len(LINES), len(LINES))
    assert Stranger(LINES).wrong == []


def test_a_stranger_finds_what_we_find() -> None:
    for number in range(1, len(LINES)):
        forged = [line.replace(b'"frame":', b'"frame":1', 1) if n == number else line for n, line in enumerate(LINES)]
        if forged != LINES:
            assert Stranger(forged).wrong == [number + 1]
            assert ("payload_digest", number + 1) in rules(audit_export(forged))


def test_a_flip_of_any_bit_is_found() -> None:
    dice = random.Random(11)
    whole = b"".join(LINES)
    missed = []
    for _ in range(400):
        place = dice.randrange(len(whole))
        changed = whole[:place] + bytes([whole[place] ^ (1 << dice.randrange(8))]) + whole[place + 1 :]
        if not audit_export(changed.splitlines(keepends=True)).findings:
            missed.append(whole[place - 20 : place + 20])
    assert missed == []


@pytest.mark.parametrize(
    ("lines", "rule"),
    [
        ([], "export"),
        ([b"{}\n"], "export"),
        ([LINES[0], b"not json\n"], "export"),
        ([LINES[0], *LINES[2:]], "sequence"),
        ([LINES[0], LINES[0], *LINES[1:]], "sequence"),
        ([LINES[0], LINES[1].replace(b"0198c0de-0001-7000", b"0198c0de-0002-7000", 1)], "export"),
    ],
)
def test_what_is_no_export_is_said_to_be_none(lines: list[bytes], rule: str) -> None:
    assert {found for found, _ in rules(audit_export(lines))} == {rule}


def test_a_tail_that_was_cut_off_is_found_by_an_anchor() -> None:
    anchors = {str(WHOLE.session_id): Anchored(len(LINES), WHOLE.events[-1].hash)}
    assert rules(audit_export(LINES, anchors)) == []
    assert rules(audit_export(LINES[:-3])) == []
    assert rules(audit_export(LINES[:-3], anchors)) == [("anchor", len(LINES))]
    # Under another name there would be no head to hold against it.
    other = SessionId("0198c0de-0009-7000-8000-000000000001")
    renamed = resealed([msgspec.structs.replace(event, session_id=other) for event in WHOLE.events])
    invented = [export_line(event) for event in renamed]
    assert rules(audit_export(invented)) == []
    assert rules(audit_export(invented, anchors)) == [("anchor", 0)]
    rewritten = {str(WHOLE.session_id): Anchored(7, bytes(32))}
    assert rules(audit_export(LINES, rewritten)) == [("anchor", 7)]


def forged_order() -> list[bytes]:
    """Two events have changed places, and everything that is computed from them is as it would be."""
    place = next(n for n, event in enumerate(WHOLE.events) if event.type == "tool.started")
    events = [*WHOLE.events[: place - 1], WHOLE.events[place], WHOLE.events[place - 1], *WHOLE.events[place + 1 :]]
    return [export_line(event) for event in resealed(events)]


@pytest.mark.parametrize(
    ("lines", "rule"),
    [
        ([*LINES[:4], LINES[5], LINES[4], *LINES[6:]], "sequence"),
        (forged_order(), "tool_known"),
        ([LINES[0].replace(b'"metadata":{', b'"metadata":{"by":"eve",'), *LINES[1:]], "chain"),
        ([LINES[0].replace(b'"metadata":{', b'"metadata":{ '), *LINES[1:]], "chain"),
        ([LINES[0].replace(b'"metadata":', b'"metadata":{},"metadata":'), *LINES[1:]], "export"),
        ([line[:-1] + b"\r\n" for line in LINES], "export"),
        ([*LINES[:-1], LINES[-1][:-1]], "export"),
        ([*LINES, LINES[0]], "sequence"),
        (LINES[3:], "sequence"),
    ],
)
def test_cheats_are_found(lines: list[bytes], rule: str) -> None:
    assert rule in {found for found, _ in rules(audit_export(lines))}


def test_the_document_names_every_rule() -> None:
    text = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    assert [rule for rule in RULES if f"`{rule}`" not in text] == []
