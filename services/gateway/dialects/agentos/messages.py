"""A run's messages, built from its events and never from what is private: no system prompt, no earlier turns."""

from typing import Any

import msgspec

from domain.ids import Micros
from services.gateway.dialects.agentos.calls import Call, seconds
from services.gateway.dialects.agentos.run import Run

_encode = msgspec.json.Encoder().encode


def messages_of(run: Run) -> list[dict[str, Any]]:
    """Oldest first. A model's text and the calls that follow it are one message, each result is one."""
    found: list[dict[str, Any]] = []
    if run.input:
        asked = _message(run.turn_id, "user", run.created_at, run.input_text)
        files = [
            {"id": part.blob, "mime_type": part.media_type, "filename": part.name, "size": part.bytes}
            for part in run.input_files
        ]
        found.append(asked | ({"files": files} if files else {}))
    open_text: str | None = None
    for kind, one in run.transcript():
        if kind == "result" and isinstance(one, Call):
            result = _message(f"{one.item_id}-result", "tool", one.ended_at or one.called_at, one.result)
            found.append(
                result
                | {
                    "tool_call_id": one.tool_call_id,
                    "tool_name": one.name,
                    "tool_args": one.arguments,
                    "tool_call_error": one.is_error,
                }
            )
            open_text = None
        elif isinstance(one, Call):
            last = found[-1] if found else None
            if last is None or last["role"] != "assistant":
                last = _message(one.item_id, "assistant", one.called_at, None)
                found.append(last)
            last.setdefault("tool_calls", []).append(
                {
                    "id": one.tool_call_id,
                    "type": "function",
                    "function": {"name": one.name, "arguments": _encode(one.arguments).decode()},
                }
            )
        elif open_text is not None and open_text == one.message_id and "tool_calls" not in found[-1]:
            found[-1]["content"] += one.text
        else:
            open_text = one.message_id
            found.append(_message(one.message_id or one.item_id, "assistant", one.at, one.text))
    return found


def _message(id_: str, role: str, at: Micros, content: str | None) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": id_,
        "content": content,
        "from_history": False,
        "stop_after_tool_call": False,
        "role": role,
        "created_at": seconds(at),
    }
    return shown if content is not None else {name: value for name, value in shown.items() if name != "content"}
