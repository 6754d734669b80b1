"""The public HTTP API as the command line uses it: the same calls and the same stream that a browser has.

Nothing here has a way around the gateway, so that `turnlog chat` and `turnlog tail` show what any client would see.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec

from services.cli.failures import CannotRun

DEFAULT_URL = "http://127.0.0.1:8080"

# The gateway sends a comment every 10 s; two and a half of them missing is a dead connection (docs/api.md).
SILENCE_SECONDS = 25.0
# One event may be as large as its limit of 512 KiB of public payload, and its JSON text somewhat larger.
MAX_EVENT_BYTES = 4 * 1024 * 1024
_FIRST_RETRY_SECONDS = 0.25
_LAST_RETRY_SECONDS = 5.0


class Frame(msgspec.Struct, frozen=True):
    """One event of the stream; `sequence` is None on temporary and stream-level frames, `raw` is exact JSON text."""

    event: str
    data: dict[str, Any]
    raw: str
    sequence: int | None = None


class Refused(Exception):
    """The gateway answered with a problem; `status` is the HTTP status, the text is its detail in one line."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        self.status = status
        self.problem = problem
        super().__init__(" ".join(str(problem.get("detail") or problem.get("title") or f"HTTP {status}").split()))


class Api:
    """One gateway, or a load balancer before several. Use as an async context manager."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        timeout = httpx2.Timeout(10.0, read=SILENCE_SECONDS)
        self._http = httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=timeout)

    async def __aenter__(self) -> "Api":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def call(self, method: str, path: str, body: object = None, key: str | None = None) -> Any:
        """The decoded JSON answer, None for an empty one. Raises Refused, CannotRun where there is no gateway."""
        headers = {"Idempotency-Key": key} if key else {}
        try:
            answer = await self._http.request(method, path, json=body, headers=headers)
        except httpx2.TransportError as error:
            raise CannotRun(self._unreachable(error)) from error
        if answer.is_error:
            raise Refused(answer.status_code, _problem(answer.content))
        return answer.json() if answer.content else None

    async def submit(self, session: str, text: str, key: str) -> dict[str, Any]:
        """Submit a turn; tried again with the same key for a while, so that an unclear answer makes no second turn."""
        for attempt in range(8):
            try:
                reply: dict[str, Any] = await self.call("POST", f"/v1/sessions/{session}/turns", {"input": text}, key)
            except CannotRun:
                if attempt == 7:
                    raise
            except Refused as error:
                if error.status != 503 or attempt == 7:
                    raise
            else:
                return reply
            await asyncio.sleep(_retry_seconds(attempt))
        raise AssertionError("unreachable")

    async def follow(self, session: str, after: int) -> AsyncIterator[Frame]:
        """Committed events from `after` on, each once and in order, temporary frames between them, across reconnects.

        Ends when the session is closed and nothing is left. Raises Refused on an answer that a retry cannot change, and
        CannotRun when there was no gateway to begin with.
        """
        failures = 0
        opened = False
        while True:
            retry: float | None = None
            try:
                headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
                async with self._http.stream("GET", f"/v1/sessions/{session}/events", headers=headers) as answer:
                    if answer.status_code == 204:
                        return
                    if answer.status_code >= 500:
                        raise httpx2.RemoteProtocolError(f"HTTP {answer.status_code}")
                    if answer.is_error:
                        raise Refused(answer.status_code, _problem(await answer.aread()))
                    opened = True
                    async for sent in httpx2.EventSource(answer, max_event_size=MAX_EVENT_BYTES):
                        failures = 0
                        if sent.retry is not None:
                            retry = sent.retry / 1000
                        if not sent.data:
                            continue
                        frame = _frame(sent)
                        if frame.event == "stream.resync":
                            after = int(sent.id)
                        elif frame.sequence is not None:
                            if frame.sequence <= after:
                                continue
                            after = frame.sequence
                        yield frame
                        if frame.event == "stream.closing" and frame.data.get("reason") == "closed":
                            return
            except httpx2.TransportError as error:
                if not opened:
                    raise CannotRun(self._unreachable(error)) from error
                retry = None
            wait = _retry_seconds(failures) if retry is None else retry
            failures += 1
            await asyncio.sleep(wait)

    def _unreachable(self, error: Exception) -> str:
        reason = " ".join(str(error).split()) or type(error).__name__
        return f"no answer from {self.url} ({reason}): start `turnlog up`, or name the gateway with --url"


def _frame(sent: httpx2.ServerSentEvent) -> Frame:
    data: dict[str, Any] = msgspec.json.decode(sent.data)
    return Frame(sent.event, data, sent.data, data.get("sequence"))


def _problem(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return {"detail": body[:200].decode(errors="replace")}


def _retry_seconds(failures: int) -> float:
    longest = min(_LAST_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2.0**failures)
    return longest * random.uniform(0.5, 1.0)
