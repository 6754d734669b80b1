"""A test's own reading of a stream: every frame as it came, with its id only where it had one.

Written from the WHATWG rules and apart from any client library, since it is to judge the server.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.support.waiting import PATIENCE


@dataclass(frozen=True, slots=True)
class Sse:
    """One dispatched event. `id` is None where the block had no id line."""

    event: str
    data: str
    id: str | None = None

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.data)
        return found

    @property
    def committed(self) -> bool:
        """An event of the log, not a stream-level or temporary one."""
        return self.id is not None and not self.event.startswith("stream.")

    @property
    def turn_id(self) -> str | None:
        return self.json.get("turn_id")


@dataclass
class SseParser:
    """Feed bytes, get events. Comments and retry times are kept beside."""

    comments: int = 0
    retries: list[int] = field(default_factory=list)
    _rest: bytes = b""
    _event: str = ""
    _data: list[str] = field(default_factory=list)
    _id: str | None = None

    def feed(self, chunk: bytes) -> list[Sse]:
        found: list[Sse] = []
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            event = self._line(line.removesuffix(b"\r").decode())
            if event is not None:
                found.append(event)
        return found

    def _line(self, line: str) -> Sse | None:
        if not line:
            made = Sse(self._event or "message", "\n".join(self._data), self._id) if self._data else None
            self._event, self._data, self._id = "", [], None
            return made
        if line.startswith(":"):
            self.comments += 1
            return None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                self._event = value
            case "data":
                self._data.append(value)
            case "id":
                self._id = value
            case "retry":
                self.retries.append(int(value))
        return None


class Stream:
    """An open stream, read in the background until it ends, is cut or is closed."""

    def __init__(self, http: httpx2.AsyncClient, url: str, headers: dict[str, str]) -> None:
        self.frames: list[Sse] = []
        self.parser = SseParser()
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body = b""
        self.ended = False
        self._change = asyncio.Condition()
        self._task = asyncio.create_task(self._read(http, url, headers))

    @property
    def committed(self) -> list[Sse]:
        """Frames of the log."""
        return [frame for frame in self.frames if frame.committed]

    @property
    def ids(self) -> list[int]:
        """Sequences of the committed frames, in the order they came."""
        return [int(frame.id) for frame in self.frames if frame.committed and frame.id is not None]

    @property
    def last_id(self) -> int:
        """What a browser would send as Last-Event-ID."""
        return next((int(frame.id) for frame in reversed(self.frames) if frame.id is not None), 0)

    async def opened(self, timeout: float = PATIENCE) -> "Stream":
        """Wait for the answer's head and, where it is a stream, its first frame."""
        await self.until(lambda: self.ended or bool(self.frames), timeout, "the stream opens")
        return self

    async def until(
        self, condition: Callable[[], bool], timeout: float = PATIENCE, what: str = "the condition"
    ) -> None:
        """Wait until `condition` holds; it is looked at after every frame and at the end."""
        try:
            async with asyncio.timeout(timeout), self._change:
                await self._change.wait_for(condition)
        except TimeoutError:
            seen = [(frame.id, frame.event) for frame in self.frames[-30:]]
            raise AssertionError(f"not within {timeout} s: {what}; ended={self.ended}, last frames: {seen}") from None

    async def event(self, type_: str, timeout: float = PATIENCE, *, turn_id: str | None = None) -> Sse:
        """Wait for the first frame of that type (of that turn)."""

        def found() -> Sse | None:
            of_type = (frame for frame in self.frames if frame.event == type_)
            return next((frame for frame in of_type if turn_id is None or frame.turn_id == turn_id), None)

        await self.until(lambda: found() is not None, timeout, f"{type_} of turn {turn_id or 'any'}")
        frame = found()
        assert frame is not None
        return frame

    async def first_committed(self, timeout: float = PATIENCE) -> Sse:
        """Wait for the first event of the log."""
        await self.until(lambda: bool(self.committed), timeout, "an event of the log")
        return self.committed[0]

    async def sequence(self, sequence: int, timeout: float = PATIENCE) -> None:
        """Wait until the event with that sequence has come."""
        await self.until(lambda: self.last_id >= sequence, timeout, f"sequence {sequence}")

    async def end(self, timeout: float = PATIENCE) -> None:
        """Wait until the server has ended the stream."""
        await self.until(lambda: self.ended, timeout, "the end of the stream")

    async def close(self) -> None:
        """Hang up."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self, http: httpx2.AsyncClient, url: str, headers: dict[str, str]) -> None:
        try:
            async with http.stream("GET", url, headers=headers) as answer:
                self.status = answer.status_code
                self.headers = dict(answer.headers)
                async for chunk in answer.aiter_bytes():
                    await self._take(chunk)
        except httpx2.TransportError:
            pass  # a cut connection is one of the things that tests do
        finally:
            self.ended = True
            async with self._change:
                self._change.notify_all()

    async def _take(self, chunk: bytes) -> None:
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            self.frames += self.parser.feed(chunk)
        else:
            self.body += chunk
        async with self._change:
            self._change.notify_all()


def assert_gapless(ids: list[int], first: int = 1) -> None:
    """Oracle O1: no hole, no repeat, no inversion."""
    expected = list(range(first, first + len(ids)))
    assert ids == expected, f"expected {expected[:3]}…{expected[-3:]}, got {ids}"
