"""One session that has gone on for years: as many events as one likes, in turns of ten, written past the pipeline."""

from collections.abc import Iterator
from typing import Any

import msgspec

from domain.events import item, registry, session, turn
from domain.events.base import Event
from domain.events.envelope import StoredEvent
from domain.ids import FRAMES_PER_ATTEMPT, EventId, Micros, Sequence, SessionId, TurnId
from domain.message import TurnMessages
from domain.parts import TextPart
from domain.ports import AppliedEvent
from domain.session import GENESIS, SessionState, evolve
from projections.audit import HEAD_COLUMNS, MESSAGE_COLUMNS, TURN_COLUMNS
from projections.audit.models import message_row, turn_row
from tests.support.planted import EVENT_COLUMNS
from tests.support.written import sealed

SESSION = SessionId("0198c0da-0000-7000-8000-000000000001")
EVENTS_A_TURN = 10
_TURNS_AT_ONCE = 500
_BASE = FRAMES_PER_ATTEMPT
_TEXT = "The quick brown fox jumps over the lazy dog. " * 12


def _uuid(number: int, kind: int) -> str:
    return f"0198c0da-{kind:04x}-7000-8000-{number:012x}"


def _turn(number: int) -> Iterator[tuple[Event, bytes | None]]:
    """What one turn says: two texts, a tool, usage and a checkpoint with model state."""
    yield (
        turn.TurnQueued(enqueue_sequence=number, input=[TextPart("Tell me more.")], idempotency_key=f"k{number}"),
        None,
    )
    parent = _uuid(number - 1, 1) if number > 1 else None
    started = turn.TurnStarted(attempt=1, reason="first", frame_base=_BASE, parent_turn_id=parent)
    yield started, msgspec.json.encode(turn.StartedPrivate(number, "worker"))
    common: dict[str, Any] = {"attempt": 1}
    deltas = [len(_TEXT) // 20] * 20
    for place, kind in enumerate((3, 4)):
        first = _BASE + 1 + 22 * place
        frames = item.ItemFrames([(first, 22)], deltas)
        text: dict[str, Any] = {"kind": "text", "message_id": _uuid(number, kind), "text": _TEXT, "frames": frames}
        yield item.ItemCompleted(**common, frame=first + 21, item_id=_uuid(number, kind), **text), None
    call = item.ToolCallData(tool_call_id="c1", name="lookup", arguments={"q": number})
    frames = item.ItemFrames([(_BASE + 45, 2)], [])
    tool: dict[str, Any] = {"item_id": _uuid(number, 5), "tool_call_id": "c1"}
    yield (
        item.ItemCompleted(
            **common, frame=_BASE + 46, item_id=tool["item_id"], kind="tool_call", tool_call=call, frames=frames
        ),
        None,
    )
    yield item.ToolStarted(**common, frame=_BASE + 47, **tool), None
    sizes = {"original_bytes": len(_TEXT), "stored_bytes": len(_TEXT)}
    result: dict[str, Any] = {"revision": 1, "final": True, "output": _TEXT, **sizes}
    yield item.ToolResultSnapshot(**common, frame=_BASE + 48, **tool, **result), None
    yield item.UsageRecorded(**common, frame=_BASE + 49, model="m", input_tokens=100, output_tokens=200), None
    state = msgspec.json.encode([{"kind": "response", "parts": [_TEXT]}])
    yield item.CheckpointReached(**common, frame=_BASE + 50, message_index=2, reason="tool_batch"), state
    yield turn.TurnCompleted(**common, frame=_BASE + 51, output=_TEXT, usage={"input_tokens": 100}), None


async def put_giant(connection: Any, turns: int) -> int:
    """Write it; the number of events. The connection must have the default uuid codec, which COPY needs."""
    state = SessionState(session_id=SESSION, turns={})
    events: list[StoredEvent] = []
    rows: dict[str, list[tuple[Any, ...]]] = {"turns": [], "messages": [], "command_log": []}
    previous, count = GENESIS, 0

    def write(data: Event, turn_id: TurnId | None, private: bytes | None) -> AppliedEvent:
        nonlocal previous, count
        count += 1
        sequence, at = Sequence(count), Micros(1_767_225_600_000_000 + count)
        event_id, payload = EventId(_uuid(count, 2)), registry.encode(data)
        draft = StoredEvent(
            SESSION, sequence, event_id, data.type, 1, turn_id, at, payload, private, bytes(16), b"", None, b"{}", b""
        )
        events.append(sealed(draft, previous))
        previous = events[-1].hash
        evolve(state, data, turn_id, sequence, at)
        return AppliedEvent(sequence, event_id, turn_id, at, data)

    write(session.SessionCreated(agent_id="echo", component="agent"), None, None)
    for number in range(1, turns + 1):
        turn_id = TurnId(_uuid(number, 1))
        messages = TurnMessages(turn_id, state.head.next_enqueue_sequence if state.head else 0, [])  # type: ignore[arg-type]
        for data, private in _turn(number):
            messages.apply(write(data, turn_id, private))
        done = state.turns.pop(turn_id)
        reply: dict[str, Any] = {"sequence": done.first_sequence, "turn_id": turn_id, "status": "queued"}
        reply |= {"enqueue_sequence": number, "queue_state": "open"}
        rows["turns"].append((SESSION, 1, *turn_row(done)))
        rows["messages"] += [(SESSION, 1, *message_row(message)) for message in messages.messages.values()]
        rows["command_log"].append((SESSION, f"key:k{number}", b"", msgspec.json.encode(reply)))
        if number % _TURNS_AT_ONCE == 0 or number == turns:
            await _copy(connection, events, rows)
    head = state.head
    assert head is not None
    head.head_hash = previous
    last = 1_767_225_600_000_000 + count
    columns = [last if name == "last_event_at" else getattr(head, name) for name in HEAD_COLUMNS]
    names = ["session_id", *HEAD_COLUMNS, "turns_generation", "messages_generation"]
    await connection.copy_records_to_table("sessions", records=[(SESSION, *columns, 1, 1)], columns=names)
    return count


async def _copy(connection: Any, events: list[StoredEvent], rows: dict[str, list[tuple[Any, ...]]]) -> None:
    records = [msgspec.structs.astuple(event) for event in events]
    await connection.copy_records_to_table("events", records=records, columns=EVENT_COLUMNS)
    named = {
        "turns": ("session_id", "generation", *TURN_COLUMNS),
        "messages": ("session_id", "generation", *MESSAGE_COLUMNS),
        "command_log": ("session_id", "idempotency_key", "fingerprint", "reply"),
    }
    for table, columns in named.items():
        await connection.copy_records_to_table(table, records=rows[table], columns=columns)
        rows[table].clear()
    events.clear()
