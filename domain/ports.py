"""What the domain's users need from the outside, as plain Protocols; `infra` implements them, `services` picks."""

from collections.abc import Sequence as Many
from typing import Any, NewType, Protocol

import msgspec

from domain.commands import Command
from domain.events.base import Event
from domain.events.envelope import StoredEvent
from domain.ids import Generation, Sequence, SessionId, TurnId
from domain.session import Head
from domain.turn import Turn

Statement = NewType("Statement", str)
"""SQL text that came out of a .sql file."""


class Outcome(msgspec.Struct, frozen=True):
    """What a command led to. `reply` is the JSON kept in `command_log`; `replayed`: it was kept before this command
    came."""

    reply: bytes
    replayed: bool = False


class CommandPipeline(Protocol):
    """Runs commands. A returned Outcome is committed; a Rejection wrote nothing; after Unavailable the same key
    settles it."""

    async def execute(self, command: Command, *, deadline: float | None = None) -> Outcome:
        """`deadline`: on the process's monotonic clock; until then retryable failures are tried again with the same
        key. Raises Rejection, Unavailable."""
        ...


class Page(msgspec.Struct, frozen=True):
    """A run of committed events of one session, in sequence, without a gap, starting right after the asked cursor.
    Empty only at the head. `head`: the last sequence of the session when read."""

    events: list[StoredEvent]
    head: Sequence


class EventStore(Protocol):
    """Committed events of one session at a time. No method holds a connection after it returns."""

    async def page(self, session_id: SessionId, after: Sequence, limit_bytes: int, limit_events: int) -> Page:
        """At least one event where there is one, else as many as fit. Raises SessionNotFound, StoreUnavailable."""
        ...

    async def heads(self, session_ids: Many[SessionId]) -> dict[SessionId, Head]:
        """Stream heads of those sessions that exist, in one statement."""
        ...


class FeedPosition(msgspec.Struct, frozen=True, order=True):
    """Place in the order across sessions."""

    transaction_id: int = 0
    position: int = 0


class Feed(Protocol):
    """Events of all sessions in an order that never gains an event behind a reader's back."""

    async def read(self, after: FeedPosition, limit: int) -> list[tuple[FeedPosition, StoredEvent]]:
        """Events after that place whose transaction lies before every open one."""
        ...


class Publication(msgspec.Struct, frozen=True):
    """One committed event on its way to viewers: `envelope` is its wire JSON, `metadata` that of its command: for who
    publishes, never for who reads."""

    session_id: SessionId
    sequence: Sequence
    envelope: bytes
    metadata: bytes = b"{}"


class Notifier(Protocol):
    """Tells others that something is committed, or shows what is not. Never blocks, never raises: notifications may be
    doubled or lost, readers converge by sequence."""

    def publish_events(self, publications: Many[Publication]) -> None: ...

    def publish_live(self, session_id: SessionId, item_id: str, frame: bytes) -> None: ...

    def publish_snapshot(self, session_id: SessionId, item_id: str, frame: bytes) -> None:
        """Like publish_live; for those who join it stands in place of all earlier frames of the item."""
        ...

    def clear_live(self, session_id: SessionId, item_id: str) -> None:
        """Those who join need no frame of the item any more. In order with the calls above."""
        ...

    def wake(self, pool: str) -> None: ...

    def signal(self, turn_id: TurnId, message: bytes) -> None: ...

    def control(self, session_id: SessionId, message: bytes) -> None: ...


class Transaction(Protocol):
    """An open database transaction, as far as a projection may use it."""

    async def execute(self, statement: Statement, *args: Any) -> None: ...

    async def fetch(self, statement: Statement, *args: Any) -> Many[Any]: ...


class AppliedEvent(msgspec.Struct, frozen=True):
    """One event as a projection sees it."""

    sequence: Sequence
    event_id: str
    turn_id: TurnId | None
    created_at: int
    data: Event


class SessionChange(msgspec.Struct, frozen=True):
    """What one transaction (or a rebuild's page) adds to one session: its events in order and the turns they touched,
    as they were before (None: new) and as they are after."""

    session_id: SessionId
    generation: Generation
    events: list[AppliedEvent]
    before: dict[TurnId, Turn | None]
    after: dict[TurnId, Turn]


class SessionProjection(Protocol):
    """A read model of one session at a time, written in the transaction that appends. `apply` is deterministic: the
    same changes from event zero give byte for byte the same rows."""

    name: str
    version: int

    async def apply(self, changes: Many[SessionChange], tx: Transaction) -> None: ...


class FeedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One committed event as a feed projection sees it: never its private part. `data` is an `UnknownEvent` where this
    release does not know the type; `metadata` is JSON without user content."""

    session_id: SessionId
    sequence: Sequence
    event_id: str
    type: str
    turn_id: TurnId | None
    created_at: int
    metadata: bytes
    data: Event


class FeedProjection(Protocol):
    """A read model across sessions, built from the feed.

    `tables` are the names of its tables and `definition` the SQL that makes them, without a schema: the same statements
    run on the tables that are served and on those of a rebuild. `apply` gets each event once, in the order of the feed
    (a session's in the order of its sequence), and writes through `tx`, whose transaction also moves the checkpoint; it
    must not commit, wait or look elsewhere. `erase` removes what users wrote in that session. Both are deterministic.
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def tables(self) -> tuple[str, ...]: ...

    @property
    def definition(self) -> str: ...

    async def apply(self, events: Many[FeedEvent], tx: Transaction) -> None: ...

    async def erase(self, session_id: SessionId, tx: Transaction) -> None: ...
