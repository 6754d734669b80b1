"""The documented client reducer (docs/events.md), as strict as a client can be: it also says what must never happen."""

from dataclasses import dataclass, field
from typing import Any

from tests.support.sse import Sse

ENDED = {
    "turn.completed": "completed",
    "turn.failed": "failed",
    "turn.interrupted": "interrupted",
    "turn.cancelled": "cancelled",
}


@dataclass
class Item:
    """`shown`: the text as it stood before the completion replaced it."""

    kind: str
    attempt: int
    text: str = ""
    next: int = 0
    open: bool = True
    shown: str = ""


@dataclass
class View:
    """What a viewer has on its screen."""

    status: dict[str, str] = field(default_factory=dict)
    items: dict[str, Item] = field(default_factory=dict)
    snapshots: int = 0
    last: int = 0
    _attempts: dict[str, int] = field(default_factory=dict)
    _turns: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """All texts, one after the other."""
        return "".join(item.text for item in self.items.values() if item.kind == "text")

    def take(self, frame: Sse) -> None:
        """Raises AssertionError on a hole, an overlap or a ghost."""
        if frame.event.startswith("stream."):
            return
        message = frame.json
        if frame.committed:
            assert message["sequence"] > self.last, "events come in order and once"
            self.last = message["sequence"]
        turn_id, data = message.get("turn_id"), message["data"]
        if turn_id is None:
            return
        if frame.event in ENDED:
            self.status[turn_id] = ENDED[frame.event]
            self._drop_open(turn_id)
            return
        match frame.event:
            case "turn.queued":
                self.status[turn_id] = "queued"
            case "turn.paused":
                self.status[turn_id] = "paused"
            case "turn.started":
                if data["attempt"] > self._attempts.get(turn_id, 0):
                    self._drop_open(turn_id)
                self._attempts[turn_id] = data["attempt"]
                self.status[turn_id] = "running"
            case "item.superseded":
                for item_id in data["item_ids"]:
                    self.items.pop(item_id, None)
            case "item.started" | "item.snapshot" | "item.delta" | "item.completed":
                self._item(turn_id, frame.event, data)

    def _item(self, turn_id: str, event: str, data: dict[str, Any]) -> None:
        item = self.items.get(data["item_id"])
        if event == "item.completed":
            shown = item.text if item is not None else ""
            made = Item(data["kind"], data["attempt"], data.get("text", ""), 0, False, shown)
            self.items[data["item_id"]] = made
            self._turns[data["item_id"]] = turn_id
            return
        assert item is None or item.open, f"{event} of a completed item"
        assert data["attempt"] >= self._attempts.get(turn_id, 0), f"{event} of an old attempt"
        match event:
            case "item.started":
                assert item is None, "started twice"
                self.items[data["item_id"]] = Item(data["kind"], data["attempt"])
            case "item.snapshot":
                self.snapshots += 1
                cuts = data["frames"]["cuts"]
                assert data["next_index"] == len(cuts)
                assert sum(cuts) == len(data["text"])
                assert item is None or data["next_index"] > item.next
                self.items[data["item_id"]] = Item(data["kind"], data["attempt"], data["text"], data["next_index"])
            case "item.delta":
                assert item is not None, "a delta of what was never shown"
                assert data["index"] == item.next, f"delta {data['index']} where {item.next} is next"
                item.text += data["text"]
                item.next += 1
        self._turns[data["item_id"]] = turn_id

    def _drop_open(self, turn_id: str) -> None:
        gone = [i for i, item in self.items.items() if item.open and self._turns.get(i) == turn_id]
        for item_id in gone:
            del self.items[item_id]


def view(frames: list[Sse]) -> View:
    """What these frames fold to."""
    made = View()
    for frame in frames:
        made.take(frame)
    return made
