"""Draws a session's stream on a terminal: deltas as they come, each text once, whatever was cut and resumed between.

The reducer is the documented one (docs/events.md): a delta applies only at the item's next index, a snapshot replaces,
the completed item settles. A terminal cannot take back what it shows, so where the settled text differs from what was
shown it is printed anew on a line of its own.
"""

import re
import sys
from dataclasses import dataclass
from typing import Any, TextIO

from services.cli.api import Frame

# A model's text may hold escape sequences, which would move the cursor or write the clipboard of whoever watches.
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_RESULT_CHARACTERS = 400

TERMINAL = {"turn.completed", "turn.failed", "turn.interrupted", "turn.cancelled"}


def safe(text: str) -> str:
    """The text without control characters, apart from newline and tab."""
    return _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


@dataclass(slots=True)
class _Item:
    shown: str = ""
    next_index: int = 0


class Screen:
    """What one person sees of one session. `mine` are turns whose input was typed here and needs no echo."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._items: dict[str, _Item] = {}
        self._column = 0
        self._waiting: list[str] = []
        self.mine: set[str] = set()

    def show(self, frame: Frame) -> None:
        """Draw one frame; unknown ones are passed over."""
        data: dict[str, Any] = frame.data.get("data", {})
        turn_id = frame.data.get("turn_id", "")
        match frame.event:
            case "turn.queued" if turn_id not in self.mine:
                self._line("you> " + safe(_text_of(data.get("input", []))))
            case "item.delta":
                self._delta(data)
            case "item.snapshot":
                self._settle(data["item_id"], data.get("text", ""), data.get("next_index", 0))
            case "item.completed":
                self._completed(data)
            case "tool_result.snapshot" if data.get("final"):
                self._between(("! " if data.get("is_error") else "= ") + _short(data.get("output", "")))
            case "turn.paused":
                for need in data.get("requirements", []):
                    arguments = _short(str(need.get("arguments", {})))
                    self._line(f"? {need['kind']} needed: {safe(need['tool_name'])} {arguments}")
            case "turn.failed":
                self._line(f"[failed: {data['error']['code']}] {safe(data['error']['message'])}")
            case "turn.interrupted" | "turn.cancelled":
                self._line(f"[{frame.event.removeprefix('turn.')} by {safe(str(data.get('by', '')))}]")
            case "session.queue_paused":
                self._line(f"[queue paused: {data.get('reason')}; /resume opens it]")
            case "stream.resync":
                self._line("[the stream was ahead of the log; going on from its end]")

    def message(self, role: str, text: str) -> None:
        """One earlier message."""
        self._line(("you> " if role == "user" else "") + safe(text))

    def prompt(self, text: str) -> None:
        """A prompt at the start of a line; the cursor stays behind it."""
        self._fresh_line()
        self._write(text)
        self._column = 0

    def _delta(self, data: dict[str, Any]) -> None:
        item = self._items.setdefault(data["item_id"], _Item())
        if data.get("index") == item.next_index:
            item.next_index += 1
            item.shown += data["text"]
            self._write(safe(data["text"]))

    def _settle(self, item_id: str, text: str, next_index: int) -> None:
        item = self._items.setdefault(item_id, _Item())
        if text.startswith(item.shown):
            self._write(safe(text[len(item.shown) :]))
        else:
            self._line(safe(text))
        item.shown = text
        item.next_index = next_index

    def _completed(self, data: dict[str, Any]) -> None:
        if data.get("kind") == "tool_call":
            call = data.get("tool_call", {})
            self._line(f"* {safe(call.get('name', ''))} {_short(str(call.get('arguments', {})))}")
        elif data.get("kind") == "text":
            self._settle(data["item_id"], data.get("text") or "", 0)
            self._fresh_line()
        self._items.pop(data["item_id"], None)
        waiting, self._waiting = self._waiting, []
        for line in waiting:
            self._between(line)

    def _between(self, text: str) -> None:
        """A line of its own, not in the middle of a sentence: a result may be committed after what follows it began."""
        if any(item.shown for item in self._items.values()):
            self._waiting.append(text)
        else:
            self._line(text)

    def _line(self, text: str) -> None:
        self._fresh_line()
        self._write(text + "\n")

    def _fresh_line(self) -> None:
        if self._column:
            self._write("\n")

    def _write(self, text: str) -> None:
        if text:
            self._out.write(text)
            self._out.flush()
            self._column = 0 if text.endswith("\n") else 1


def _short(text: str) -> str:
    flat = " ".join(safe(text).split())
    return flat if len(flat) <= _RESULT_CHARACTERS else flat[:_RESULT_CHARACTERS] + " …"


def _text_of(parts: list[dict[str, Any]]) -> str:
    return "\n".join(str(part.get("text") or part.get("name") or "(file)") for part in parts)
