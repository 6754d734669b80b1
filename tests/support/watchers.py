"""Viewers by the thousand: each follows a session as a browser's EventSource does, over as many connections as need be,
and costs next to nothing. Written from the WHATWG rules and RFC 9112, apart from any client library."""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tests.support.sse import Sse, SseParser


@dataclass(slots=True)
class Connection:
    """One of a watcher's. `ended`: the server's reason, None where it was cut. Times are the loop's, in seconds."""

    port: int
    after: int
    opened: float
    lasted: float = 0.0
    ended: str | None = None
    retry: int | None = None


def _free() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(slots=True)
class Watcher:
    """`ports`: gateways, each connection at the next one. `seconds_of`: how long to wait for which `retry:`. `may`: it
    connects while that is set."""

    session: str
    ports: list[int]
    authorization: str = ""
    seconds_of: Callable[[int], float] = lambda milliseconds: milliseconds / 1000
    may: asyncio.Event = field(default_factory=_free)
    last: int = 0
    ids: list[int] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    stopped: bool = False
    _turn: int = 0

    @property
    def live(self) -> bool:
        """Its newest connection has been opened and has not ended."""
        return bool(self.connections) and not self.connections[-1].lasted

    async def run(self) -> None:
        """Until the session is closed for good or `stopped`."""
        retry = 1_000
        while not self.stopped:
            await self.may.wait()
            retry = await self._connect() or retry
            await asyncio.sleep(0.0 if self.stopped else self.seconds_of(retry))

    async def _connect(self) -> int | None:
        loop = asyncio.get_running_loop()
        port = self.ports[self._turn % len(self.ports)]
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            self._turn += 1
            return None
        made: Connection | None = None
        parser = SseParser()
        try:
            writer.write(self._request())
            status = int((await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1])
            if status == 204:
                self.stopped = True
                return None
            assert status == 200, status
            made = Connection(port, self.last, loop.time())
            self.connections.append(made)
            async for chunk in _chunks(reader):
                for frame in parser.feed(chunk):
                    self._take(frame, made)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()
            self._turn += 1
            if made is not None:
                made.lasted = max(loop.time() - made.opened, 1e-9)
                made.retry = parser.retries[-1] if parser.retries else None
        return parser.retries[-1] if parser.retries else None

    def _request(self) -> bytes:
        lines = [f"GET /v1/sessions/{self.session}/events HTTP/1.1", "Host: 127.0.0.1", "Accept: text/event-stream"]
        if self.authorization:
            lines.append(f"Authorization: {self.authorization}")
        return "\r\n".join([*lines, f"Last-Event-ID: {self.last}", "", ""]).encode()

    def _take(self, frame: Sse, connection: Connection) -> None:
        if frame.event == "stream.closing":
            connection.ended = frame.json["reason"]
        if frame.id is None:
            return
        self.last = int(frame.id)
        if frame.committed:
            self.ids.append(self.last)


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int(await reader.readline() or b"0", 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)


@asynccontextmanager
async def watching_all(watchers: list[Watcher]) -> AsyncIterator[None]:
    """All of them run while the block does."""
    tasks = [asyncio.create_task(watcher.run()) for watcher in watchers]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for watcher in watchers:
            watcher.stopped = True
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)


async def until_all(watchers: list[Watcher], holds: Callable[[Watcher], bool], seconds: float, what: str) -> None:
    """Wait until it holds for each of them."""
    try:
        async with asyncio.timeout(seconds):
            while not all(map(holds, watchers)):
                await asyncio.sleep(0.02)
    except TimeoutError:
        late = [watcher for watcher in watchers if not holds(watcher)]
        seen = [(one.last, one.connections[-2:]) for one in itertools.islice(late, 5)]
        raise AssertionError(
            f"not within {seconds} s: {what}; {len(late)} of {len(watchers)}, such as {seen}"
        ) from None


def statements_like(pattern: str, texts: list[str]) -> int:
    """How many statements say that."""
    return sum(1 for text in texts if re.search(pattern, text))
