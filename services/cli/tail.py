"""`turnlog tail`: the committed events of a session, one a line, across reconnects."""

import sys
from typing import Any

from services.cli.api import Api, Frame
from services.cli.failures import FINE
from services.cli.screen import safe

_SUMMARY_CHARACTERS = 100


async def run_tail(url: str, token: str | None, session: str, after: int, *, json: bool, live: bool) -> int:
    """Print until the session is closed; with `live` the temporary frames too."""
    async with Api(url, token) as api:
        async for frame in api.follow(session, after):
            if frame.sequence is None and not (live and not frame.event.startswith("stream.")):
                continue
            sys.stdout.write((frame.raw if json else _line(frame)) + "\n")
            sys.stdout.flush()
    return FINE


def _line(frame: Frame) -> str:
    number = "" if frame.sequence is None else str(frame.sequence)
    turn = str(frame.data.get("turn_id") or "")[-8:]
    summary = " ".join(safe(_summary(frame.event, frame.data.get("data", {}))).split())
    if len(summary) > _SUMMARY_CHARACTERS:
        summary = summary[:_SUMMARY_CHARACTERS] + " …"
    return f"{number:>6}  {frame.event:<22} {turn:<8}  {summary}".rstrip()


def _summary(event: str, data: dict[str, Any]) -> str:
    match event:
        case "turn.queued":
            return " ".join(str(part.get("text", part.get("name", ""))) for part in data.get("input", []))
        case "turn.started":
            return f"attempt {data['attempt']} ({data['reason']})"
        case "turn.failed":
            return f"{data['error']['code']}: {data['error']['message']}"
        case "item.completed":
            call = data.get("tool_call")
            return f"{call['name']} {call.get('arguments', {})}" if call else str(data.get("text", ""))
        case "item.delta":
            return str(data["text"])
        case "tool_result.snapshot":
            return ("final: " if data["final"] else "") + str(data["output"])
        case _:
            return str(data.get("output") or data.get("reason") or "")
