"""The tool calls of one run of a callable agent, and which of them the log knows from earlier attempts and legs."""

from collections.abc import Callable, Iterable, Iterator

from domain.runtime import RecordedCall, RuntimeFailed
from turnlog import ToolResult


class Calls:
    """Code may use a call id again for another call, so a call is known by its item: the first call with an id is the
    first recorded one with that id, the second the second.

    `visible` is what the agent sees as `turn.recorded`: of each id the result of the call in hand, or of the next
    one."""

    def __init__(self, recorded: Iterable[RecordedCall]) -> None:
        self._left: dict[str, list[RecordedCall]] = {}
        for call in recorded:
            self._left.setdefault(call.tool_call_id, []).append(call)
        self._items: dict[str, str] = {}
        self._known: dict[str, RecordedCall | None] = {}
        self._open: set[str] = set()
        self.visible: dict[str, ToolResult] = {}
        for tool_call_id in self._left:
            self._show_next(tool_call_id)

    @property
    def any_open(self) -> bool:
        """Some call has no final result yet."""
        return bool(self._open)

    def make(self, tool_call_id: str, new_id: Callable[[], str]) -> RecordedCall | None:
        """The agent makes a call; returns it as the log has it, None where it is new."""
        left = self._left.get(tool_call_id)
        known = left.pop(0) if left else None
        self._items[tool_call_id] = new_id() if known is None else known.item_id
        self._known[tool_call_id] = known
        self._open.add(tool_call_id)
        self._show(tool_call_id, known)
        return known

    def item_of(self, tool_call_id: str) -> str:
        """The item of the call in hand. Raises RuntimeFailed where there is none."""
        if tool_call_id not in self._items:
            raise RuntimeFailed("agent_error", f"There was no ToolCall {tool_call_id[:100]!r} before its result.")
        return self._items[tool_call_id]

    def is_open(self, tool_call_id: str) -> bool:
        """The call in hand has no final result in this run yet."""
        return tool_call_id in self._open

    def recorded_result(self, tool_call_id: str) -> str | None:
        """The final result that the log has of the call in hand."""
        known = self._known.get(tool_call_id)
        return None if known is None else known.output

    def close(self, tool_call_id: str) -> None:
        """The call in hand has its final result."""
        self._open.discard(tool_call_id)
        self._show_next(tool_call_id)

    def unsaid(self) -> Iterator[tuple[str, str]]:
        """Open calls whose result is in the log: this run need not say it."""
        for tool_call_id in sorted(self._open, key=list(self._items).index):
            output = self.recorded_result(tool_call_id)
            if output is not None:
                yield tool_call_id, output

    def _show_next(self, tool_call_id: str) -> None:
        left = self._left.get(tool_call_id)
        self._show(tool_call_id, left[0] if left else None)

    def _show(self, tool_call_id: str, call: RecordedCall | None) -> None:
        if call is None or call.output is None:
            self.visible.pop(tool_call_id, None)
        else:
            self.visible[tool_call_id] = ToolResult(
                tool_call_id=tool_call_id, output=call.output, is_error=call.is_error
            )
