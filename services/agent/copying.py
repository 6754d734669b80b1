"""Copies a session's ended turns into another one, private parts included: they never leave this service."""

import msgspec

from domain.commands import CopyTurns
from domain.copying import Copyist
from domain.errors import NothingToCopy, SessionNotFound
from domain.events import registry
from domain.events.envelope import Draft
from domain.ids import CommandKey, Sequence, SessionId, TurnId
from services.agent.deps import AgentDeps

_FIRST = Sequence(2)
_EVENTS = 500
_BYTES = 4 * 1024 * 1024
_PAGE = 500


class Copy(msgspec.Struct, frozen=True):
    """What to copy: what had ended at `upto`. `name`: what its owner calls the source."""

    source: SessionId
    upto: Sequence
    name: str


async def copy(deps: AgentDeps, target: SessionId, asked: Copy) -> int:
    """Into a session that was created for it; how many turns. A repeat, also beside the first try, goes on where that
    one is: each piece has a key. Whole turns in a transaction, so that nobody ever finds one of them open. Raises
    NothingToCopy, SessionNotFound, Unavailable."""
    heads = await deps.store.heads([target])
    if target not in heads:
        raise SessionNotFound(session_id=target)
    copyist = Copyist(asked.source, target, asked.name, _FIRST)
    pieces = _Pieces(deps, target, asked.source)
    count = 0
    for turn_id in await _turns(deps, asked.source):
        drafts = copyist.copied(await deps.history.turn_events(asked.source, turn_id), asked.upto)
        count += bool(drafts)
        await pieces.add(drafts)
    if not count:
        raise NothingToCopy()
    await pieces.write()
    return count


async def _turns(deps: AgentDeps, source: SessionId) -> list[TurnId]:
    """Of those that are over, in the order of their acceptance."""
    found: list[TurnId] = []
    cursor: int | None = None
    while True:
        page = await deps.read_models.turns(source, limit=_PAGE, cursor=cursor)
        found += [turn.turn_id for turn in page.items if turn.terminal]
        cursor = page.next_cursor
        if cursor is None:
            return found[::-1]


class _Pieces:
    """Turns on their way into the log, so many at a time."""

    def __init__(self, deps: AgentDeps, target: SessionId, source: SessionId) -> None:
        self._deps = deps
        self._target = target
        self._source = source
        self._events: list[Draft] = []
        self._size = 0
        self._first = _FIRST

    async def add(self, drafts: list[Draft]) -> None:
        size = sum(len(registry.encode(draft.data)) + len(draft.private or b"") for draft in drafts)
        if len(self._events) + len(drafts) > _EVENTS or self._size + size > _BYTES:
            await self.write()
        self._events += drafts
        self._size += size

    async def write(self) -> None:
        if not self._events:
            return
        command = CopyTurns(
            session_id=self._target,
            key=CommandKey(f"copy:{self._first}"),
            source_session_id=self._source,
            first=self._first,
            events=self._events,
        )
        await self._deps.pipeline.execute(command, deadline=self._deps.clock.monotonic() + self._deps.command_seconds)
        self._first = Sequence(self._first + len(self._events))
        self._events, self._size = [], 0
