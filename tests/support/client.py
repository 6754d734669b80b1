"""The public HTTP API as a test uses it, against one gateway."""

import asyncio
from typing import Any

import httpx2

from tests.support.sse import Sse, Stream
from tests.support.waiting import PATIENCE, eventually

TERMINAL = ("turn.completed", "turn.failed", "turn.interrupted", "turn.cancelled")


class Client:
    """One gateway. Answers are checked for their status where a test says which it expects."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
        self.http = httpx2.AsyncClient(base_url=url, headers=headers, timeout=httpx2.Timeout(PATIENCE), limits=limits)
        self._streams: list[Stream] = []

    async def close(self) -> None:
        await asyncio.gather(*(stream.close() for stream in self._streams))
        await self.http.aclose()

    async def request(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        """Any call; header names in snake case."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.http.request(method, path, json=body, headers=named)

    async def json(self, method: str, path: str, body: Any = None, *, status: int = 200, **headers: str) -> Any:
        """The decoded answer, which must have that status."""
        answer = await self.request(method, path, body, **headers)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    async def create(self, agent: str, **fields: Any) -> str:
        """A new session; returns its id."""
        made = await self.json("POST", "/v1/sessions", {"agent_id": agent, **fields}, status=201)
        session: str = made["session_id"]
        return session

    async def submit(self, session: str, text: str, key: str | None = None, **fields: Any) -> dict[str, Any]:
        """Submit a turn; returns the 202's body."""
        headers = {} if key is None else {"Idempotency_Key": key}
        body = {"input": text, **fields}
        reply: dict[str, Any] = await self.json("POST", f"/v1/sessions/{session}/turns", body, status=202, **headers)
        return reply

    def stream(self, session: str, after: int | None = None, **headers: str) -> Stream:
        """Open the session's stream; `after` goes as Last-Event-ID."""
        sent = {"Accept": "text/event-stream", **headers}
        if after is not None:
            sent["Last-Event-ID"] = str(after)
        stream = Stream(self.http, f"/v1/sessions/{session}/events", sent)
        self._streams.append(stream)
        return stream

    async def events(self, session: str) -> list[dict[str, Any]]:
        """All committed events, by the JSON form."""
        items: list[dict[str, Any]] = []
        after = 0
        while True:
            path = f"/v1/sessions/{session}/events?after_sequence={after}"
            page = await self.json("GET", path, Accept="application/json")
            if not page["items"]:
                return items
            items += page["items"]
            after = page["items"][-1]["sequence"]

    async def messages(self, session: str) -> list[dict[str, Any]]:
        """All messages in order, page by page from the newest."""
        items: list[dict[str, Any]] = []
        path = f"/v1/sessions/{session}/messages?limit=200"
        before = ""
        while True:
            page = await self.json("GET", path + before)
            items = page["items"] + items
            if page["next_cursor"] is None:
                return items
            before = f"&before={page['next_cursor']}"

    async def turn(self, session: str, turn: str) -> dict[str, Any]:
        found: dict[str, Any] = await self.json("GET", f"/v1/sessions/{session}/turns/{turn}")
        return found

    async def run(self, session: str, text: str, timeout: float = PATIENCE) -> Sse:
        """Submit and wait for the end of that turn, on a stream from the start; returns the terminal event."""
        stream = self.stream(session, 0)
        try:
            turn = (await self.submit(session, text))["turn_id"]
            return await terminal(stream, turn, timeout)
        finally:
            await stream.close()


async def terminal(stream: Stream, turn: str, timeout: float = PATIENCE) -> Sse:
    """Wait for the turn's terminal event on a stream."""

    def found() -> Sse | None:
        ends = (frame for frame in stream.frames if frame.event in TERMINAL)
        return next((frame for frame in ends if frame.turn_id == turn), None)

    await stream.until(lambda: found() is not None, timeout, f"the end of turn {turn}")
    frame = found()
    assert frame is not None
    return frame


async def finished(client: Client, session: str, turn: str, timeout: float = PATIENCE) -> dict[str, Any]:
    """The turn once it is terminal; asks, and needs no stream."""

    async def ended() -> dict[str, Any] | None:
        seen: dict[str, Any] = await client.turn(session, turn)
        return seen if seen["finished_at"] else None

    seen = await eventually(ended, f"turn {turn} ends", timeout=timeout)
    assert seen is not None
    return seen
