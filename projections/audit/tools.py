"""Tools of one turn: what has an effect outside happens once, and its result is in the log before the turn ends."""

import msgspec

from domain.events import item, turn
from domain.events.base import Event
from projections.audit.findings import Findings
from projections.audit.frames import from_outside

_OF_TOOLS = frozenset(
    {item.ItemCompleted, item.ToolStarted, item.ToolResultSnapshot, item.ItemSuperseded, turn.TurnCompleted}
)


class ToolCall(msgspec.Struct):
    """What the log has told of one call, known by the id of its item. `revision`: (attempt, number), since a tool that
    may run again counts its results anew."""

    idempotent: bool
    starts: int = 0
    revision: tuple[int, int] = (0, 0)
    final: bool = False
    superseded: bool = False


class Tools:
    """All tool calls of one turn."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._calls: dict[str, ToolCall] = {}

    def apply(self, event: Event, sequence: int) -> None:
        """Events that concern no tool are passed over."""
        if type(event) not in _OF_TOOLS:
            return
        match event:
            case item.ItemCompleted(tool_call=item.ToolCallData() as call):
                self._calls[event.item_id] = ToolCall(idempotent=call.idempotent)
            case item.ToolStarted():
                self._started(event, sequence)
            case item.ToolResultSnapshot():
                self._result(event, sequence)
            case item.ItemSuperseded():
                for item_id in event.item_ids:
                    if item_id in self._calls:
                        self._calls[item_id].superseded = True
            case turn.TurnCompleted() if not from_outside(event):
                self._completed(sequence)

    def _known(self, event: item.ToolStarted | item.ToolResultSnapshot, sequence: int) -> ToolCall | None:
        call = self._calls.get(event.item_id)
        if call is None:
            self._findings.add(
                sequence, "tool_known", f"{event.type} of item {event.item_id}, which is no call before it"
            )
        return call

    def _started(self, event: item.ToolStarted, sequence: int) -> None:
        call = self._known(event, sequence)
        if call is None:
            return
        if call.final:
            self._findings.add(sequence, "tool_once", f"{event.item_id} starts after its final result")
        elif call.starts and not call.idempotent:
            self._findings.add(sequence, "tool_once", f"{event.item_id} starts again and is not idempotent")
        call.starts += 1

    def _result(self, event: item.ToolResultSnapshot, sequence: int) -> None:
        call = self._known(event, sequence)
        if call is None:
            return
        if call.final:
            self._findings.add(sequence, "tool_result", f"{event.item_id} has a result after its final one")
        elif (event.attempt, event.revision) <= call.revision:
            detail = f"revision {event.revision} of {event.item_id} follows {call.revision[1]}"
            self._findings.add(sequence, "tool_result", detail)
        call.revision = (event.attempt, event.revision)
        call.final = call.final or event.final

    def _completed(self, sequence: int) -> None:
        for item_id, call in self._calls.items():
            if call.starts and not call.final and not call.superseded:
                self._findings.add(sequence, "tool_before_end", f"{item_id} started and has no final result")
