"""Lesson 3: a stream that breaks is resumed where it was lost: of a new run, and of one that goes on after a person's
decision. `sse_reconnect.py run`, `sse_reconnect.py continue`, or both without a word."""

import json
import sys
from itertools import islice
from typing import Any

from talk import events, said

RUNS = "/agents/resumable-stream-agent/runs"

Events = list[dict[str, Any]]


def resumed(seen: Events, session_id: str) -> Events:
    """What came after the last event that was seen, by a new connection: to any gateway."""
    last = seen[-1]
    path = f"{RUNS}/{last['run_id']}/resume"
    return [*events(path, session_id=session_id, last_event_index=str(last["event_index"]))]


def check(seen: Events) -> None:
    """Nothing is missing and nothing came twice."""
    assert [event["event_index"] for event in seen] == list(range(len(seen)))
    assert seen[-1]["event"] == "RunCompleted", seen[-1]
    assert said(seen) == seen[-1]["content"]
    print("completed:", seen[-1]["content"])


def new_run() -> None:
    session = "sse-reconnect-run-session"
    form = {"message": "Why do streams break? Do not call reserve_trip.", "session_id": session}
    seen = list(islice(events(RUNS, **form, background="true", stream="true"), 4))
    print("lost after event", seen[-1]["event_index"])
    check(seen + resumed(seen, session))


def continued_run() -> None:
    session = "sse-reconnect-continue-session"
    seen = list(events(RUNS, message="Reserve a demonstration trip to Kyoto.", session_id=session, stream="true"))
    paused = seen[-1]
    assert paused["event"] == "RunPaused", paused
    tools = [{**tool, "confirmed": True} for tool in paused["tools"] if tool["requires_confirmation"]]
    print("asked for:", tools[0]["tool_name"], tools[0]["tool_args"])

    form = {"tools": json.dumps(tools), "session_id": session, "background": "true", "stream": "true"}
    seen += islice(events(f"{RUNS}/{paused['run_id']}/continue", **form), 2)
    print("lost after event", seen[-1]["event_index"])
    seen += resumed(seen, session)
    check(seen)
    assert sum(event["event"] == "ToolCallCompleted" for event in seen) == 1, "the trip is reserved once"


def main() -> None:
    ways = {"run": new_run, "continue": continued_run}
    for way in sys.argv[1:] or ways:
        ways[way]()


if __name__ == "__main__":
    main()
