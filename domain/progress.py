"""What of a running attempt is not behind a resume point yet: what a recovery has to judge.

A checkpoint is the resume point. After a death the next attempt goes on from the last one: texts completed since then
are superseded, calls that have no result are taken up again, unless their tool may have run and may not run twice.
"""

import msgspec

from domain.events import item
from domain.events.base import Event


class OpenCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool call without a final result."""

    tool_call_id: str
    idempotent: bool = False
    started: bool = False


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """`loose`: texts and reasonings completed since the last checkpoint. `calls`: by item id, those without a
    result."""

    loose: list[str] = []
    calls: dict[str, OpenCall] = {}

    def unsettled(self) -> list[str]:
        """Items of calls whose tool may have run, once at most: nobody knows how they ended."""
        return [item_id for item_id, call in self.calls.items() if call.started and not call.idempotent]

    def in_tool(self) -> bool:
        """A tool runs, so a silence is no sign of trouble."""
        return any(call.started for call in self.calls.values())


_NOTHING = Progress()


def advance(known: Progress | None, event: Event) -> Progress | None:
    """The progress after an executor's event; None where nothing is open."""
    was = known or _NOTHING
    match event:
        case item.ItemCompleted(tool_call=item.ToolCallData() as call):
            opened = OpenCall(call.tool_call_id, call.idempotent)
            now = Progress(was.loose, {**was.calls, event.item_id: opened})
        case item.ItemCompleted():
            now = Progress([*was.loose, event.item_id], was.calls)
        case item.ToolStarted() if event.item_id in was.calls:
            started = msgspec.structs.replace(was.calls[event.item_id], started=True)
            now = Progress(was.loose, {**was.calls, event.item_id: started})
        case item.ToolResultSnapshot(final=True) if event.item_id in was.calls:
            now = Progress(was.loose, {i: c for i, c in was.calls.items() if i != event.item_id})
        case item.ItemSuperseded():
            gone = set(event.item_ids)
            now = Progress([i for i in was.loose if i not in gone], was.calls)
        case item.CheckpointReached():
            now = Progress([], was.calls)
        case _:
            return known
    return now if now.loose or now.calls else None
