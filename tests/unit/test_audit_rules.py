"""Each rule finds the corruption that is planted against it, names it, and finds nothing else."""

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from domain.erasing import skeleton
from domain.events import registry
from domain.events.base import Event
from domain.events.envelope import StoredEvent
from domain.events.item import ItemCompleted, ItemFrames
from domain.ids import Sequence, TurnId
from projections.audit import HEAD_COLUMNS, MESSAGE_COLUMNS, RULES, TURN_COLUMNS, HeadRow, ReplyRow, Row, Stored
from projections.audit.models import MESSAGE_PLACE, TURN_PLACE, turn_row
from tests.support.story import story
from tests.support.written import audit, folded, resealed, sealed

WHOLE = story()
SESSION = WHOLE.session_id


class Rows:
    """A copy of the story's rows to be damaged."""

    def __init__(self) -> None:
        self.events = list(WHOLE.events)
        stored = WHOLE.stored()
        self.turns, self.messages, self.replies = list(stored.turns), list(stored.messages), list(stored.replies)
        self.head: HeadRow | None = WHOLE.head()
        self.events_only = False

    def findings(self) -> list[tuple[str, int]]:
        self.turns.sort(key=lambda row: int(row[TURN_PLACE]))
        self.messages.sort(key=lambda row: int(row[MESSAGE_PLACE]))
        self.replies.sort(key=lambda row: row.place)
        stored = Stored(self.turns, self.messages, self.replies)
        report = audit(SESSION, self.events, None if self.events_only else stored, self.head)
        assert all(finding.rule in RULES and finding.session_id == SESSION for finding in report.findings)
        return [(finding.rule, finding.sequence) for finding in report.findings]

    def find(self, type_: str, occurrence: int = 0, **having: Any) -> int:
        """Index of an event."""
        fits = [
            index
            for index, event in enumerate(self.events)
            if event.type == type_ and all(getattr(event.event(), k) == v for k, v in having.items())
        ]
        return fits[occurrence]

    def set(self, index: int, **columns: Any) -> int:
        """Change columns; the sequence of the event."""
        self.events[index] = msgspec.structs.replace(self.events[index], **columns)
        return index + 1

    def say(self, index: int, **fields: Any) -> int:
        """Change the payload and, as a forger would, everything that is computed from it."""
        event = msgspec.structs.replace(self.events[index].event(), **fields)
        sequence = self.set(index, payload=registry.encode(event))
        self.forge()
        return sequence

    def insert(self, index: int, event: Event, turn_id: TurnId | None) -> int:
        like = self.events[index - 1]
        new = msgspec.structs.replace(
            like, type=event.type, payload=registry.encode(event), turn_id=turn_id, private=None
        )
        self.events.insert(index, new)
        self.forge()
        return index + 1

    def shift_frames(self, index: int, by: int) -> None:
        """Move the frame numbers of the same turn's later events."""
        turn_id = self.events[index].turn_id
        for later in range(index, len(self.events)):
            event = self.events[later].event()
            if self.events[later].turn_id != turn_id or not hasattr(event, "frame"):
                continue
            fields: dict[str, Any] = {"frame": event.frame + by}
            if isinstance(event, ItemCompleted):
                runs = [(first + by, count) for first, count in event.frames.runs]
                fields["frames"] = ItemFrames(runs, event.frames.cuts)
            self.say(later, **fields)

    def forge(self) -> None:
        """Everything is as it would be had these events been written, but for what only their order tells."""
        self.events = resealed(self.events)
        head = list(self.head or ())
        head[0], head[1], head[2] = len(self.events), self.events[-1].hash, self.events[-1].created_at
        self.head = tuple(head)


Plant = Callable[[Rows], int]
PLANTS: dict[str, tuple[str, Plant]] = {}


def plant(rule: str) -> Callable[[Plant], Plant]:
    def register(function: Plant) -> Plant:
        PLANTS[f"{rule}:{function.__name__}"] = (rule, function)
        return function

    return register


@plant("sequence")
def missing_event(rows: Rows) -> int:
    index = rows.find("item.completed", 2)
    del rows.events[index]
    return index + 2


@plant("sequence")
def doubled_event(rows: Rows) -> int:
    rows.events.insert(9, rows.events[8])
    return 9


@plant("chain")
def other_metadata(rows: Rows) -> int:
    return rows.set(5, metadata=b'{"command":"forged"}')


@plant("chain")
def other_time(rows: Rows) -> int:
    return rows.set(5, created_at=rows.events[5].created_at + 1)


@plant("chain")
def other_hash(rows: Rows) -> int:
    return rows.set(5, hash=bytes(32))


@plant("chain")
def rewritten_event(rows: Rows) -> int:
    """Digest and hash fit the new payload, but what follows was chained to the old one."""
    index = rows.find("item.completed", 1)
    text = msgspec.structs.replace(rows.events[index].event(), scope=None, partial=True)
    rows.events[index] = msgspec.structs.replace(rows.events[index], payload=registry.encode(text))
    rows.events[index] = resealed([*rows.events[: index + 1]])[-1]
    return index + 2


@plant("payload_digest")
def other_payload(rows: Rows) -> int:
    index = rows.find("turn.completed")
    return rows.set(index, payload=rows.events[index].payload.replace(b"done", b"dome"))


@plant("payload_digest")
def other_salt(rows: Rows) -> int:
    return rows.set(7, salt=bytes(16))


@plant("payload_digest")
def other_digest(rows: Rows) -> int:
    return rows.set(7, payload_digest=bytes(32))


@plant("private_digest")
def other_private(rows: Rows) -> int:
    index = rows.find("checkpoint.reached")
    return rows.set(index, private=b"[]")


@plant("private_digest")
def private_gone(rows: Rows) -> int:
    return rows.set(rows.find("turn.started"), private=None)


@plant("private_digest")
def other_private_digest(rows: Rows) -> int:
    return rows.set(rows.find("turn.started"), private_digest=bytes(32))


@plant("payload")
def shapeless_payload(rows: Rows) -> int:
    sequence = rows.set(rows.find("item.completed"), payload=b'{"attempt":1}')
    rows.forge()
    return sequence


@plant("payload")
def no_json(rows: Rows) -> int:
    sequence = rows.set(rows.find("item.completed"), payload=b'{"attempt":\xff}')
    rows.forge()
    return sequence


@plant("erasure")
def salt_gone(rows: Rows) -> int:
    return rows.set(rows.find("tool.started"), salt=None)


@plant("erasure")
def salt_gone_and_a_text_left(rows: Rows) -> int:
    return rows.set(rows.find("item.completed"), salt=None)


@plant("transition")
def completed_before_its_start(rows: Rows) -> int:
    index = rows.find("turn.started")
    completed = rows.events[rows.find("turn.completed")].event()
    return rows.insert(index, completed, rows.events[index].turn_id)


@plant("transition")
def revived(rows: Rows) -> int:
    """A turn that failed completes."""
    index = rows.find("turn.failed")
    completed = rows.events[rows.find("turn.completed")].event()
    return rows.insert(index + 2, completed, rows.events[index].turn_id)


@plant("transition")
def unheard_of(rows: Rows) -> int:
    """An event of a turn that was never queued."""
    sequence = rows.set(rows.find("turn.cancelled"), turn_id=TurnId("0198c0de-0000-7000-8000-000000000bad"))
    rows.forge()
    return sequence


@plant("one_active")
def second_active(rows: Rows) -> int:
    index = rows.find("turn.started")
    waiting = rows.events[rows.find("turn.queued", 1)].turn_id
    return rows.insert(index + 1, rows.events[index].event(), waiting)


@plant("closed")
def closed_before_the_end(rows: Rows) -> int:
    """The session is closed one event before its last."""
    closed = registry.decode("session.closed", 1, b'{"reason":"deleted"}')
    sequence = rows.insert(len(rows.events) - 1, closed, None)
    head = list(rows.head or ())
    head[HEAD_COLUMNS.index("closed_at")] = rows.events[sequence - 1].created_at
    rows.head = tuple(head)
    moved = rows.events[-1]
    rows.turns = [_placed(row, TURN_PLACE, len(rows.events)) if row[0] == moved.turn_id else row for row in rows.turns]
    index = next(i for i, row in enumerate(rows.messages) if row[MESSAGE_PLACE] == len(rows.events) - 1)
    row = list(rows.messages[index])
    row[MESSAGE_PLACE] = row[MESSAGE_COLUMNS.index("first_sequence")] = len(rows.events)
    rows.messages[index] = tuple(row)
    rows.replies = [reply for reply in rows.replies if reply.key != f"turn:{moved.turn_id}"]
    return sequence + 1


def _placed(row: Row, index: int, value: Any) -> Row:
    return (*row[:index], value, *row[index + 1 :])


@plant("attempt")
def attempt_left_out(rows: Rows) -> int:
    """The last turn's only attempt calls itself the second, and its frames start at the second's base."""
    sequence = rows.say(rows.find("turn.started", -1), attempt=2, frame_base=2 * 2**32)
    index = rows.find("item.completed", -1)
    frames = registry.decode("item.completed", 1, rows.events[index].payload).frames  # type: ignore[attr-defined]
    runs = [(first + 2**32, count) for first, count in frames.runs]
    rows.say(index, attempt=2, frame=runs[0][0] + runs[0][1] - 1, frames=msgspec.structs.replace(frames, runs=runs))
    turn_id = rows.events[index].turn_id
    rows.turns = [_placed(row, TURN_COLUMNS.index("attempt"), 2) if row[0] == turn_id else row for row in rows.turns]
    return sequence


@plant("tool_known")
def call_unknown(rows: Rows) -> int:
    return rows.say(rows.find("tool.started", 1), item_id="0198c0de-0000-7000-8000-000000000bad")


@plant("tool_before_end")
def completed_without_result(rows: Rows) -> int:
    """The final result says it is not final."""
    rows.say(rows.find("tool_result.snapshot", 1), final=False)
    return rows.find("turn.completed") + 1


@plant("tool_result")
def revision_repeated(rows: Rows) -> int:
    return rows.say(rows.find("tool_result.snapshot", 1), revision=1)


@plant("item_frames")
def cuts_too_short(rows: Rows) -> int:
    index = rows.find("item.completed", kind="text")
    frames = rows.events[index].event().frames  # type: ignore[attr-defined]
    return rows.say(index, frames=msgspec.structs.replace(frames, cuts=[8, 8]))


@plant("turns")
def turn_row_gone(rows: Rows) -> int:
    return int(rows.turns.pop(1)[TURN_PLACE])


@plant("turns")
def turn_row_too_many(rows: Rows) -> int:
    rows.turns.append(("0198c0de-0000-7000-8000-000000000bad", *rows.turns[0][1:]))
    return int(rows.turns[0][TURN_PLACE])


@plant("messages")
def message_row_gone(rows: Rows) -> int:
    return int(rows.messages.pop(3)[MESSAGE_PLACE])


@plant("messages")
def message_row_too_many(rows: Rows) -> int:
    rows.messages.append(("0198c0de-0000-7000-8000-000000000bad", *rows.messages[0][1:]))
    return int(rows.messages[0][MESSAGE_PLACE])


@plant("head")
def head_gone(rows: Rows) -> int:
    rows.head = None
    return len(rows.events)


@plant("head")
def tail_cut_off(rows: Rows) -> int:
    """The last event is missing, and the read models know nothing of it: only the head still tells."""
    rows.events = rows.events[:-1]
    last = len(rows.events)
    turns = folded(SESSION, rows.events).turns.values()
    rows.turns = [turn_row(turn) for turn in turns]
    rows.messages = [row for row in rows.messages if row[MESSAGE_PLACE] <= last]
    rows.replies = [reply for reply in rows.replies if reply.place <= last]
    return last


@plant("replies")
def acceptance_forgotten(rows: Rows) -> int:
    index = next(i for i, reply in enumerate(rows.replies) if reply.reply is not None and b"enqueue" in reply.reply)
    return rows.replies.pop(index).place


@plant("queue_order")
def second_before_first(rows: Rows) -> int:
    """What the first turn did, the second one did."""
    queued = [rows.find("turn.queued", 0), rows.find("turn.queued", 1)]
    first, second = (rows.events[index].turn_id for index in queued)
    other = {first: second, second: first}
    for index, event in enumerate(rows.events):
        if index not in queued and event.turn_id in other:
            rows.set(index, turn_id=other[event.turn_id])
    rows.forge()
    rows.events_only = True
    return rows.find("turn.started") + 1


@plant("queue_order")
def started_while_the_queue_is_paused(rows: Rows) -> int:
    index = rows.find("session.queue_resumed")
    resumed = rows.events.pop(index)
    rows.events.insert(index + 1, resumed)
    rows.forge()
    rows.events_only = True
    return index + 1


@plant("tool_once")
def not_idempotent_after_all(rows: Rows) -> int:
    """The tool that was started once is started once more."""
    index = rows.find("tool.started")
    started = rows.events[index].event()
    rows.shift_frames(index + 1, 1)
    rows.insert(index + 1, msgspec.structs.replace(started, frame=started.frame + 1), rows.events[index].turn_id)  # type: ignore[attr-defined]
    rows.events_only = True
    return index + 2


@plant("tool_once")
def started_after_its_result(rows: Rows) -> int:
    """The same for the idempotent one: not after its final result."""
    index = rows.find("tool_result.snapshot", 2)
    started = rows.events[rows.find("tool.started", 1)].event()
    result = rows.events[index].event()
    rows.shift_frames(index + 1, 1)
    rows.insert(index + 1, msgspec.structs.replace(started, frame=result.frame + 1), rows.events[index].turn_id)  # type: ignore[attr-defined]
    rows.events_only = True
    return index + 2


@plant("frames")
def number_used_twice(rows: Rows) -> int:
    """The checkpoint has the number of the result before it; all later ones are one lower."""
    index = rows.find("checkpoint.reached")
    rows.shift_frames(index, -1)
    rows.events_only = True
    return index + 1


@plant("frames")
def numbers_descend(rows: Rows) -> int:
    """Two results in the order of their tools' end, not of their numbers."""
    index = rows.find("tool_result.snapshot", 0)
    one, two = rows.events[index].event(), rows.events[index + 1].event()
    rows.say(index, frame=two.frame)  # type: ignore[attr-defined]
    rows.say(index + 1, frame=one.frame)  # type: ignore[attr-defined]
    rows.events_only = True
    return index + 2


@plant("frames_dense")
def number_left_out(rows: Rows) -> int:
    index = rows.find("checkpoint.reached")
    rows.shift_frames(index, 1)
    rows.events_only = True
    return rows.find("turn.completed") + 1


@plant("item_frames")
def runs_too_short(rows: Rows) -> int:
    """An item accounts for one number less than it had deltas: the others are dense."""
    index = rows.find("item.completed", kind="text")
    frames = rows.events[index].event().frames  # type: ignore[attr-defined]
    rows.events_only = True
    return rows.say(index, frames=msgspec.structs.replace(frames, cuts=[*frames.cuts, 0]))


def test_every_rule_of_a_session_has_a_plant() -> None:
    elsewhere = {"blobs", "anchor", "export"}
    assert {rule for rule, _ in PLANTS.values()} == set(RULES) - elsewhere


def test_the_story_is_clean() -> None:
    assert Rows().findings() == []


@pytest.mark.parametrize("name", PLANTS)
def test_what_is_planted_is_found_and_nothing_else(name: str) -> None:
    rule, function = PLANTS[name]
    rows = Rows()
    sequence = function(rows)
    assert rows.findings() == [(rule, sequence)]


HASHED = tuple(name for name in StoredEvent.__struct_fields__ if name != "session_id")


def flipped(value: Any, dice: random.Random) -> Any:
    """The value with one bit of one byte turned; text stays text, as it must in a database."""
    match value:
        case bool():
            return not value
        case int():
            return value ^ (1 << dice.randrange(31))
        case str():
            place = dice.randrange(len(value))
            return value[:place] + chr(ord(value[place]) ^ (1 << dice.randrange(4))) + value[place + 1 :]
        case _:
            place = dice.randrange(len(value))
            return value[:place] + bytes([value[place] ^ (1 << dice.randrange(8))]) + value[place + 1 :]


def test_a_thousand_random_flips_are_found() -> None:
    """One bit of one column of one row at a time: events, turns, messages, head."""
    dice = random.Random(5)
    missed = []
    done = 0
    while done < 1000:
        rows = Rows()
        kind = dice.choice(["events", "events", "turns", "messages", "head"])
        if kind == "events":
            index, column = dice.randrange(len(rows.events)), dice.choice(HASHED)
            value = getattr(rows.events[index], column)
            place: Any = (index + 1, column)
            if value in (None, b""):
                continue
            rows.set(index, **{column: flipped(value, dice)})
        elif kind == "head":
            columns = list(rows.head or ())
            index = dice.randrange(len(columns))
            place = HEAD_COLUMNS[index]
            if columns[index] is None:
                continue
            columns[index] = flipped(columns[index], dice)
            rows.head = tuple(columns)
        else:
            table: list[Row] = getattr(rows, kind)
            index = dice.randrange(len(table))
            names = TURN_COLUMNS if kind == "turns" else MESSAGE_COLUMNS
            column_index = dice.randrange(len(names))
            place = (index, names[column_index])
            value = table[index][column_index]
            if value is None:
                continue
            table[index] = _placed(table[index], column_index, flipped(value, dice))
        done += 1
        found = rows.findings()
        if not found or (kind != "events" and {rule for rule, _ in found} != {kind}):
            missed.append((kind, place, found))
    assert missed == []


REPLIES: list[tuple[str, bytes, bytes]] = [
    ("key:resume", b'"open"', b'"paused"'),
    ("key:cancel", b'"cancelled"', b'"queued"'),
    ("key:create", b'"echo"', b'"ecco"'),
    ("turn:", b'"completed"', b'"failed"'),
    ("key:k", b'"enqueue_sequence":', b'"enqueue_sequence":7'),
    ("key:k", b'{"sequence":', b'{"sequence":9999'),
    ("key:k", b"{", b""),
]


@pytest.mark.parametrize(("key", "was", "becomes"), REPLIES)
def test_a_reply_that_says_otherwise_is_found(key: str, was: bytes, becomes: bytes) -> None:
    rows = Rows()
    fits = [i for i, r in enumerate(rows.replies) if r.key.startswith(key) and r.reply is not None and was in r.reply]
    reply = rows.replies[fits[0]]
    assert reply.reply is not None
    changed = reply.reply.replace(was, becomes, 1)
    place = 9999 if becomes.endswith(b"9999") else reply.place
    rows.replies[fits[0]] = ReplyRow(place, reply.key, reply.fence, changed)
    assert {rule for rule, _ in rows.findings()} == {"replies"}


def test_unknown_types_are_skipped_not_found() -> None:
    rows = Rows()
    rows.set(rows.find("checkpoint.reached"), type="item.dreamt", schema_version=3)
    rows.forge()
    report = audit(SESSION, rows.events, None, None)
    assert (report.skipped, report.findings) == ({"item.dreamt 3": 1}, [])
    assert report.judged_to == len(rows.events)


def test_a_newer_version_of_a_known_type_ends_the_judgement() -> None:
    rows = Rows()
    rows.set(rows.find("item.completed", 2), schema_version=2)
    rows.forge()
    report = audit(SESSION, rows.events, None, None)
    assert (report.skipped, report.findings) == ({"item.completed 2": 1}, [])
    assert report.judged_to == rows.find("item.completed", 2)


def test_damage_ends_the_judgement_but_not_the_chain() -> None:
    rows = Rows()
    rows.set(5, metadata=b"{}")
    rows.set(20, metadata=b"{}")
    report = audit(SESSION, rows.events, WHOLE.stored(), rows.head)
    assert [(f.rule, f.sequence) for f in report.findings] == [("chain", 6), ("chain", 21)]
    assert (report.judged_to, report.events) == (5, len(rows.events))


def test_an_erased_session_is_clean_and_says_how_far() -> None:
    """Payloads and salts are gone up to the end of the story, digests and chain are as they were."""
    rows = Rows()
    last = len(rows.events)
    for index, stored in enumerate(rows.events):
        rows.set(index, payload=skeleton(stored.type, stored.payload), salt=None, private=None)
    erased = msgspec.structs.replace(
        WHOLE.events[-1],
        sequence=Sequence(last + 1),
        type="session.erased",
        turn_id=None,
        payload=b'{"up_to_sequence":%d}' % last,
    )
    rows.events.append(sealed(erased, rows.events[-1].hash))
    state = folded(SESSION, rows.events)
    assert state.head is not None
    state.head.head_hash = rows.events[-1].hash
    at = rows.events[-1].created_at
    head = tuple(at if name == "last_event_at" else getattr(state.head, name) for name in HEAD_COLUMNS)
    turns = sorted(map(turn_row, state.turns.values()), key=lambda row: int(row[TURN_PLACE]))
    replies = [ReplyRow(0, reply.key, reply.fence, None) for reply in rows.replies]
    report = audit(SESSION, rows.events, Stored(turns, [], replies), head)
    assert (report.findings, report.erased_to, report.judged_to) == ([], last, last + 1)
    text = rows.find("item.completed", kind="text")
    forged = rows.events[text].payload.replace(b'"text":""', b'"text":"never said"')
    assert forged != rows.events[text].payload
    rows.set(text, payload=forged)
    found = audit(SESSION, rows.events, None, None).findings
    assert [(f.rule, f.sequence) for f in found] == [("erasure", text + 1)]
    rows.set(text, payload=skeleton("item.completed", forged))
    unsaid = audit(SESSION, rows.events[:-1], None, None)
    assert [(f.rule, f.sequence) for f in unsaid.findings] == [("erasure", last)]
