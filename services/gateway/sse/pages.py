"""Replay pages of one session for all who watch it here: what was read for one, or passed by just now, is not read
again for another."""

import asyncio
from asyncio import Future

from domain.errors import AgentUnavailable
from services.gateway.sse.ports import ReplayPage
from services.gateway.sse.replays import Replays, Spawn
from services.gateway.sse.tail import Tail

_LIKELY = 256
"""Events that a page is taken to hold at least: who asks for one of them waits for it, and need not ask if it does."""


class Pages:
    """`tail`: the newest events, kept as they pass. Nobody's page is older than their question by more than the page
    that was on its way then; it may therefore end below a head that they know of, and asking again after its last event
    reads afresh."""

    __slots__ = ("_asked", "_forgotten", "_replays", "_session_id", "_spawn", "tail")

    def __init__(self, session_id: str, replays: Replays, spawn: "Spawn", tail: Tail) -> None:
        self.tail = tail
        self._session_id = session_id
        self._replays = replays
        self._spawn = spawn
        self._asked: dict[int, Future[ReplayPage]] = {}
        self._forgotten = 0

    def ask(self, after: int, limit: int | None = None) -> "Future[ReplayPage]":
        """The page after that cursor, of so many events at most if it must be read for this; whoever awaits it shields
        it. Raises SessionNotFound, Unavailable."""
        asked = self._asked.get(after)
        if asked is None:
            asked = asyncio.get_running_loop().create_future()
            kept = self.tail.after(after)
            if kept is not None:
                asked.set_result(kept)
                return asked
            self._asked[after] = asked
            asked.add_done_callback(_seen)
            self._spawn(self._read(after, limit, asked))
        return asked

    async def page(self, after: int) -> ReplayPage:
        """`ask`, awaited; first of all for a page on its way that most likely has it. Raises SessionNotFound,
        Unavailable."""
        near = [at for at in self._asked if at < after <= at + _LIKELY]
        if near and self.tail.after(after) is None:
            await asyncio.wait((self._asked[max(near)],))
        return await asyncio.shield(self.ask(after))

    def forget(self) -> None:
        """Events have changed, or went by unseen and one of them may say so."""
        self._forgotten += 1
        self.tail.clear()

    async def _read(self, after: int, limit: int | None, asked: "Future[ReplayPage]") -> None:
        before = self._forgotten
        try:
            page = await self._replays.read(self._session_id, after, limit)
        except Exception as error:  # noqa: BLE001 - root of a task: whoever waits for the page gets the error
            asked.set_exception(error)
        else:
            if before == self._forgotten:
                self.tail.add(page)
            asked.set_result(page)
        finally:
            del self._asked[after]
            if not asked.done():
                # This process ends.
                asked.set_exception(AgentUnavailable())


def _seen(asked: "Future[ReplayPage]") -> None:
    """A page that nobody waits for any more may fail in silence."""
    if not asked.cancelled():
        asked.exception()
