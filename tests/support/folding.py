"""Oracle O2: messages folded from events as a client would do it, written apart from the read model."""

from typing import Any


def fold(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Envelopes in sequence → messages in order; of each its id, turn, role, status and text."""
    places: dict[str, tuple[int, int]] = {}
    messages: dict[str, dict[str, Any]] = {}
    counted: dict[str, int] = {}
    of_item: dict[str, str] = {}
    for event in events:
        turn, data = event.get("turn_id") or "", event["data"]
        if event["type"] == "turn.queued":
            counted[turn] = data["enqueue_sequence"] * 1_000_000
            text = "".join(part["text"] for part in data["input"])
            messages[event["event_id"]] = _message(event["event_id"], turn, "user", text)
            places[event["event_id"]] = (data["enqueue_sequence"], 0)
        elif event["type"] == "item.completed" and data["kind"] == "text":
            made = messages.get(data["message_id"])
            if made is None:
                counted[turn] += 1
                made = messages[data["message_id"]] = _message(data["message_id"], turn, "assistant", "")
                places[data["message_id"]] = divmod(counted[turn], 1_000_000)
            made["text"] += data["text"]
            if data.get("partial"):
                made["status"] = "partial"
            of_item[data["item_id"]] = data["message_id"]
        elif event["type"] == "item.superseded":
            for item in data["item_ids"]:
                if item in of_item:
                    messages[of_item[item]]["status"] = "superseded"
        elif event["type"] == "turn.superseded":
            for message in messages.values():
                if message["turn_id"] == turn:
                    message["status"] = "superseded"
    return sorted(messages.values(), key=lambda message: places[message["message_id"]])


def shown(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the messages route answers, in the same form."""
    return [
        {
            **{name: message[name] for name in ("message_id", "turn_id", "role", "status")},
            "text": "".join(part["text"] for part in message["parts"]),
        }
        for message in messages
    ]


def _message(message_id: str, turn_id: str, role: str, text: str) -> dict[str, Any]:
    return {"message_id": message_id, "turn_id": turn_id, "role": role, "status": "complete", "text": text}
