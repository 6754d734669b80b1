"""What delivery needs from its surroundings: the agent service, the broker, and the connection under a stream."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Many
from typing import Literal, Protocol

from services.gateway.sse.live import Frame


class SessionHead(Protocol):
    """Where a session stands, as the agent service read it after it was asked."""

    @property
    def last_sequence(self) -> int: ...
    @property
    def chat_status(self) -> str: ...
    @property
    def active_turn_id(self) -> str | None: ...
    @property
    def closed(self) -> bool: ...


class Heads(Protocol):
    """Answer for many sessions; those that do not exist are left out. `epoch` is the store's."""

    @property
    def epoch(self) -> int: ...
    @property
    def heads(self) -> Mapping[str, SessionHead]: ...


class ReplayPage(Protocol):
    """Committed events `first..last` without a gap, right after the cursor that was asked for, as ready bytes (SSE
    blocks, or the items of a JSON array). `first = last = after` when empty. `head`, `closed`: of the session when
    read."""

    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def head(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    @property
    def body(self) -> bytes: ...


class Agent(Protocol):
    """The agent service. Both calls read what is committed when they are received, never a cache. Raise
    SessionNotFound, Unavailable."""

    async def page(
        self, session_id: str, after: int, form: Literal["sse", "json"] = "sse", limit: int | None = None
    ) -> ReplayPage: ...

    async def heads(self, session_ids: Many[str]) -> Heads: ...


class OpenItemsUnavailable(Exception):
    """Nobody tells what is open: viewers wait for roll-ups and completions."""


class OpenItems(Protocol):
    """What is kept elsewhere of a session's open items."""

    async def read(self, session_id: str, early: Many[tuple[Frame, bytes]]) -> Many[tuple[Frame, bytes]]:
        """Temporary frames in the order of their publication, then those of `early`, without those whose item, turn or
        attempt is past as of now. Raises OpenItemsUnavailable."""
        ...


class Listener(Protocol):
    """Receives what is published about one session, in the order of arrival, each call without waiting."""

    def on_event(self, envelope: bytes) -> None: ...
    def on_live(self, frame: bytes) -> None: ...
    def on_control(self, message: bytes) -> None: ...
    def on_gap(self) -> None:
        """Something may have been missed: a reconnect, an overflow."""
        ...


class Subscription(Protocol):
    """An open subscription of one session."""

    def close(self) -> None:
        """No call of the listener follows. Does not wait and does not raise."""
        ...


class Subscriber(Protocol):
    """The broker, as far as viewers need it."""

    async def subscribe(self, session_id: str, listener: Listener) -> Subscription:
        """Returns once the broker confirmed that it delivers from now on. While the broker is away it returns too,
        and the listener is told of a gap when the broker is back."""
        ...


class Peer(Protocol):
    """The connection under one streaming response; every write is whole SSE blocks, so that writers need not agree."""

    @property
    def gone(self) -> bool:
        """Nothing more reaches it."""
        ...

    @property
    def writable(self) -> bool:
        """Less than 64 KiB wait in this process to be taken by the kernel."""
        ...

    def write(self, chunk: bytes) -> None:
        """One HTTP chunk as `chunk_of` makes it. Never waits; the caller owns the bound."""
        ...

    def write_body(self, body: bytes) -> None:
        """The same for bytes that are not chunk-coded yet, without copying them."""
        ...

    async def drain(self) -> None:
        """Returns when writable or gone."""
        ...

    def finish(self, last: bytes) -> None:
        """A last chunk, past the mark if need be, then the end of the response; what was written before still goes
        out."""
        ...

    def watch(self, lost: Callable[[], None]) -> None:
        """Calls `lost` once when the connection is lost, soon if it already is."""
        ...


def chunk_of(body: bytes) -> bytes:
    """HTTP/1.1 chunk coding, made once and shared by all viewers. Chunks may be joined."""
    return b"%x\r\n%b\r\n" % (len(body), body)
