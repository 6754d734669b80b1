"""Surroundings of the delivery code that a test drives by hand: a log in place of the agent service, a broker that
loses, doubles and swaps on demand, and a gateway with nothing but the stream route behind a real loopback server.

What needs the real store and the real broker is tested with them elsewhere; this is for failures that must happen at an
exact moment.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from collections.abc import Sequence as Many
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal

import msgspec
from litestar import Litestar, get
from litestar.connection import Request

from domain.errors import AgentUnavailable, SessionNotFound
from domain.events.envelope import envelope
from domain.ids import Micros
from services.gateway import problems
from services.gateway.agent_client import Heads, ReplayPage, SessionHead
from services.gateway.sse import frames
from services.gateway.sse.cursor import cursor_of
from services.gateway.sse.hub import Hub
from services.gateway.sse.limits import Limits
from services.gateway.sse.peer import StreamProtocol
from services.gateway.sse.ports import Listener, OpenItems
from services.gateway.sse.response import EventStream
from services.lifecycle import Life, listen, serve
from tests.support.client import Client

Hook = Callable[[], Awaitable[None]]


async def nothing() -> None:
    """A hook that does not interfere."""


class Log:
    """Committed events of any number of sessions, answering as the agent service does. Hooks run around each read."""

    def __init__(self, page_bytes: int = 512 * 1024) -> None:
        self.page_bytes = page_bytes
        self.away = False
        self.before_page: Hook = nothing
        self.after_page: Hook = nothing
        self.before_heads: Hook = nothing
        self.after_heads: Hook = nothing
        self.pages: list[tuple[str, int]] = []
        self.head_requests: list[list[str]] = []
        self.closed: set[str] = set()
        self.epoch = 1
        self._sessions: dict[str, list[tuple[str, bytes]]] = {}

    def append(
        self, session: str, type_: str = "runtime.event", data: Any = None, turn_id: str | None = None, pad: int = 0
    ) -> bytes:
        """Commits one event and returns its envelope."""
        events = self._sessions.setdefault(session, [])
        sequence = len(events) + 1
        payload = msgspec.json.encode({**(data or {}), **({"pad": "x" * pad} if pad else {})})
        made = envelope(session, sequence, f"event-{sequence}", type_, 1, turn_id, Micros(0), payload)
        events.append((type_, made))
        if type_ == "session.closed":
            self.closed.add(session)
        return made

    def restore(self, session: str, last: int) -> None:
        """Go back to an older state, as a restored backup."""
        del self._sessions[session][last:]
        self.epoch += 1

    def last(self, session: str) -> int:
        return len(self._sessions.get(session, []))

    def envelope(self, session: str, sequence: int) -> bytes:
        return self._sessions[session][sequence - 1][1]

    async def page(
        self, session_id: str, after: int, form: Literal["sse", "json"] = "sse", limit: int | None = None
    ) -> ReplayPage:
        self.pages.append((session_id, after))
        await self.before_page()
        self._reach(session_id)
        events = self._sessions[session_id]
        body = b""
        last = after
        for type_, made in events[after:]:
            block = frames.event(last + 1, type_, made)
            if body and (len(body) + len(block) > self.page_bytes or last - after == limit):
                break
            body += block
            last += 1
        page = ReplayPage(min(after + 1, last), last, len(events), session_id in self.closed, body)
        await self.after_page()
        return page

    async def heads(self, session_ids: Many[str]) -> Heads:
        self.head_requests.append(list(session_ids))
        await self.before_heads()
        if self.away:
            raise AgentUnavailable()
        known = [session for session in session_ids if session in self._sessions]
        answer = Heads(self.epoch, {session: self._head(session) for session in known})
        await self.after_heads()
        return answer

    def _head(self, session: str) -> SessionHead:
        return SessionHead(self.last(session), "open", None, None, 0, "human", session in self.closed)

    def _reach(self, session: str) -> None:
        if self.away:
            raise AgentUnavailable()
        if session not in self._sessions:
            raise SessionNotFound()


class FakeSubscription:
    def __init__(self, listeners: set[Listener], listener: Listener) -> None:
        self._listeners = listeners
        self._listener = listener

    def close(self) -> None:
        self._listeners.discard(self._listener)


class FakeBroker:
    """Delivers what it is told to, when it is told to. `down`: nothing is delivered, subscribing still returns."""

    def __init__(self) -> None:
        self.down = False
        self.before_subscribe: Hook = nothing
        self.after_subscribe: Hook = nothing
        self._listeners: dict[str, set[Listener]] = {}

    async def subscribe(self, session_id: str, listener: Listener) -> FakeSubscription:
        await self.before_subscribe()
        listeners = self._listeners.setdefault(session_id, set())
        listeners.add(listener)
        await self.after_subscribe()
        return FakeSubscription(listeners, listener)

    @property
    def subscriptions(self) -> int:
        return sum(len(listeners) for listeners in self._listeners.values())

    def event(self, session: str, made: bytes) -> None:
        for listener in () if self.down else list(self._listeners.get(session, ())):
            listener.on_event(made)

    def live(self, session: str, type_: str, turn_id: str, **data: Any) -> None:
        made = msgspec.json.encode({"session_id": session, "type": type_, "turn_id": turn_id, "data": data})
        for listener in () if self.down else list(self._listeners.get(session, ())):
            listener.on_live(made)

    def control(self, session: str, reason: str) -> None:
        for listener in list(self._listeners.get(session, ())):
            listener.on_control(msgspec.json.encode({"reason": reason}))

    def gap(self) -> None:
        for listeners in self._listeners.values():
            for listener in list(listeners):
                listener.on_gap()


class StreamGateway:
    """A gateway with the stream route only, on a real loopback socket."""

    def __init__(self, hub: Hub, url: str, life: Life, served: "asyncio.Task[None]") -> None:
        self.hub = hub
        self.url = url
        self.life = life
        self.served = served

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


def stream_app(hub: Hub) -> Litestar:
    """The stream route without authentication."""

    @get("/v1/sessions/{session_id:str}/events")
    async def events(
        request: Request[Any, Any, Any], session_id: str, after_sequence: str | None = None
    ) -> EventStream:
        cursor = cursor_of(request.headers.get("last-event-id"), after_sequence)
        return EventStream(hub, session_id, cursor)

    return Litestar([events], openapi_config=None, logging_config=None, exception_handlers=problems.HANDLERS)


@asynccontextmanager
async def stream_gateway(
    agent: Any,
    broker: Any,
    limits: Limits | None = None,
    drain_seconds: float = 0.0,
    open_items: OpenItems | None = None,
    user_timeout: float = 30.0,
) -> AsyncIterator[StreamGateway]:
    """Serves until the block ends (or the test stops its life)."""
    async with Hub(agent, broker, limits, open_items) as hub:
        listener = listen("127.0.0.1", 0, user_timeout)
        life = Life()
        served = asyncio.create_task(
            serve(stream_app(hub), listener, life, drain=lambda: hub.drain(drain_seconds), protocol=StreamProtocol)
        )
        try:
            yield StreamGateway(hub, f"http://127.0.0.1:{listener.getsockname()[1]}", life, served)
        finally:
            life.stop()
            await served


@asynccontextmanager
async def watching(*urls: str) -> AsyncIterator[tuple[Client, ...]]:
    """A test client for each URL."""
    async with AsyncExitStack() as stack:
        clients = []
        for url in urls:
            client = Client(url)
            stack.push_async_callback(client.close)
            clients.append(client)
        yield tuple(clients)
