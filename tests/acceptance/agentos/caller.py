"""AgentOS's contract as a client uses it: forms in, JSON or a stream out."""

import json
from contextlib import aclosing
from typing import Any

import httpx2

from tests.support.sse import Sse, SseParser
from tests.support.waiting import eventually

Event = dict[str, Any]
META = ("catch_up", "subscribed", "replay", "error")


class Caller:
    """One server. Use as a context manager."""

    def __init__(self, url: str, headers: dict[str, str] | None = None) -> None:
        self.http = httpx2.AsyncClient(base_url=url, headers=headers or {}, timeout=httpx2.Timeout(30.0))

    async def __aenter__(self) -> "Caller":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def post(self, path: str, headers: dict[str, str] | None = None, **form: Any) -> httpx2.Response:
        """A form."""
        return await self.http.post(path, data={name: str(value) for name, value in form.items()}, headers=headers)

    async def get(self, path: str, **query: Any) -> httpx2.Response:
        return await self.http.get(path, params=query)

    async def run(self, agent: str, message: str, session: str, **form: Any) -> Any:
        """A run to its end; its object."""
        answer = await self.post(f"/agents/{agent}/runs", message=message, session_id=session, stream="false", **form)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def begin(self, agent: str, message: str, session: str, **form: Any) -> str:
        """A run in the background; its id."""
        path = f"/agents/{agent}/runs"
        answer = await self.post(path, message=message, session_id=session, stream="false", background="true", **form)
        assert answer.status_code == 202, answer.text
        said = answer.json()
        assert said["status"] == "PENDING"
        return str(said["run_id"])

    async def poll(self, agent: str, run: str, session: str) -> Any:
        answer = await self.get(f"/agents/{agent}/runs/{run}", session_id=session)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def until(self, agent: str, run: str, session: str, *statuses: str) -> Any:
        """The run's object once it has one of those statuses."""

        async def reached() -> Any:
            found = await self.poll(agent, run, session)
            return found if found["status"] in statuses else None

        return await eventually(reached, f"run {run} is {statuses}")

    async def stream(self, path: str, stop_after: int | None = None, **form: Any) -> list[Sse]:
        """Frames of a stream until it ends, or until so many have come: then it is cut."""
        found: list[Sse] = []
        parser = SseParser()
        data = {name: str(value) for name, value in form.items()}
        async with self.http.stream("POST", path, data=data) as answer:
            assert answer.status_code == 200, (await answer.aread()).decode()
            async with aclosing(answer.aiter_bytes()) as chunks:
                async for chunk in chunks:
                    found += parser.feed(chunk)
                    if stop_after is not None and len(found) >= stop_after:
                        return found[:stop_after]
        return found

    async def resume(
        self, agent: str, run: str, session: str, after: int | None, stop_after: int | None = None, kind: str = "agents"
    ) -> Any:
        """Events of `/resume`, without the frames about the stream."""
        form = {"session_id": session} | ({} if after is None else {"last_event_index": str(after)})
        return events(await self.stream(f"/{kind}/{agent}/runs/{run}/resume", stop_after, **form))


def events(frames: list[Sse]) -> list[Event]:
    """Of a stream, without the frames about it; each says its name, and its index in its id."""
    found = []
    for frame in frames:
        if frame.event in META:
            continue
        data = json.loads(frame.data)
        assert data["event"] == frame.event
        assert frame.id == str(data["event_index"])
        found.append(data)
    return found


def indices(found: list[Event]) -> list[int]:
    return [event["event_index"] for event in found]


def names(found: list[Event]) -> list[str]:
    """Names in order, pieces of a text as one."""
    seen: list[str] = []
    for event in found:
        if not (event["event"].endswith("RunContent") and seen and seen[-1] == event["event"]):
            seen.append(event["event"])
    return seen


def said(found: list[Event]) -> str:
    """The content as a client puts it together."""
    text = ""
    for event in found:
        if event["event"] == "RunContinued" and "content" in event:
            text = event["content"]
        elif event["event"] == "RunContent":
            text += event["content"]
    return text
