"""What a paused turn asks, and what a typed line answers."""

import json
from typing import Any

from services.cli.screen import safe

HELP = {
    "approval": "y, n, or n and why",
    "input": "a JSON object of arguments, or a text; n refuses",
    "external": "the result, as JSON or text; n refuses",
}


def prompt_of(need: dict[str, Any]) -> str:
    """What stands before the cursor."""
    return f"{safe(need['tool_name'])} ({HELP.get(need['kind'], 'an answer')})> "


def answer_of(need: dict[str, Any], line: str) -> dict[str, Any] | None:
    """The answer that the line gives to that question; None where it decides nothing."""
    text = line.strip()
    word, _, rest = text.partition(" ")
    given: dict[str, Any] = {"tool_call_id": need["tool_call_id"]}
    if need.get("item_id") is not None:
        # Call ids are used again: a late answer must not be taken for one to the next question.
        given["item_id"] = need["item_id"]
    if word.lower() in ("n", "no"):
        return {**given, "approved": False, **({"note": rest.strip()} if rest.strip() else {})}
    if need["kind"] == "approval":
        return {**given, "approved": True} if word.lower() in ("y", "yes") else None
    if not text:
        return None
    value = _json_or_text(text)
    if need["kind"] == "external":
        return {**given, "result": value}
    return {**given, "arguments": value if isinstance(value, dict) else {"answer": value}}


def _json_or_text(text: str) -> Any:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return text
    # null would be no answer at all.
    return text if value is None else value


def open_ones(turn: dict[str, Any]) -> list[dict[str, Any]]:
    """The questions of a turn that nobody has answered."""
    if turn["status"] != "paused":
        return []
    return [need for need in turn["requirements"] if need.get("answer") is None]
