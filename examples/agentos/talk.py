"""What the lessons share: where the gateway is, and how to wait and to read a stream."""

import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx2

GATEWAY = os.environ.get("TURNLOG_URL", "http://127.0.0.1:8080")
AGENTOS = GATEWAY + os.environ.get("TURNLOG_AGENTOS_PREFIX", "/agentos").rstrip("/")
PATIENCE = 60.0

http = httpx2.Client(base_url=AGENTOS, timeout=PATIENCE)


def post(path: str, **form: str) -> Any:
    """A form; the answer's JSON."""
    answer = http.post(path, data=form)
    assert answer.is_success, f"{answer.status_code} {answer.text}"
    return answer.json()


def get(path: str, **query: str) -> Any:
    answer = http.get(path, params=query)
    assert answer.is_success, f"{answer.status_code} {answer.text}"
    return answer.json()


def events(path: str, **form: str) -> Iterator[dict[str, Any]]:
    """The events of a run's stream as they come. Frames about the stream itself (catch_up, subscribed, replay) have no
    index and are left out."""
    with http.stream("POST", path, data=form) as answer:
        assert answer.is_success, f"{answer.status_code} {answer.read().decode()}"
        for line in answer.iter_lines():
            if line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                if "event_index" in event:
                    yield event


def until(look: Callable[[], Any], good: Callable[[Any], bool]) -> Any:
    """Look again until it is good."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = look()
        if good(found):
            return found
        time.sleep(0.1)
    raise TimeoutError(f"still {found}")


def ended(agent: str, run_id: str, session_id: str) -> Any:
    """The run, once it is over."""
    over = ("COMPLETED", "ERROR", "CANCELLED")
    return until(
        lambda: get(f"/agents/{agent}/runs/{run_id}", session_id=session_id), lambda run: run["status"] in over
    )


def said(seen: list[dict[str, Any]]) -> str:
    """The pieces of the answer, put together."""
    return "".join(event["content"] for event in seen if event["event"] == "RunContent")
