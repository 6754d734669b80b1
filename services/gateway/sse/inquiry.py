"""Questions to the agent service about where sessions stand, many in one request."""

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterable
from typing import NamedTuple

import structlog

from domain.errors import AgentUnavailable, SessionNotFound, TurnlogError
from services.gateway.sse.pace import Pace
from services.gateway.sse.ports import Agent, SessionHead

_BATCH = 2_000

_log = structlog.get_logger(__name__)


class Stand(NamedTuple):
    """Where a session stands and the epoch of the store that says so."""

    head: SessionHead
    epoch: int


class Inquiry:
    """One request at a time asks for everything that was wanted before it was sent, so an answer is never older than
    its question: a client may know an event that a request on its way has not seen."""

    def __init__(
        self, agent: Agent, learn: Callable[[str, SessionHead, int], None], timeout_seconds: float, pace: Pace
    ) -> None:
        """`learn` is told of every head that an answer holds, and of the epoch. `pace`: so many requests, since a storm
        of streams would else ask as often as it can, each time for a few."""
        self._timeout = timeout_seconds
        self._pace = pace
        self._agent = agent
        self._learn = learn
        self._wanted: dict[str, Future[Stand] | None] = {}
        self._wake = asyncio.Event()

    def check(self, session_ids: Iterable[str]) -> None:
        """Ask soon; the answer goes to `learn` only. A failure is left to the next check."""
        for session_id in session_ids:
            self._wanted.setdefault(session_id, None)
        if self._wanted:
            self._wake.set()

    async def stand(self, session_id: str) -> Stand:
        """As read after this call. Raises SessionNotFound, Unavailable."""
        asked = self._wanted.get(session_id)
        if asked is None:
            asked = self._wanted[session_id] = asyncio.get_running_loop().create_future()
        self._wake.set()
        return await asyncio.shield(asked)

    async def run(self) -> None:
        """Asks until cancelled; who still waits then is told that nobody answers."""
        try:
            await self._ask_for_ever()
        finally:
            _fail(self._wanted, AgentUnavailable())

    async def _ask_for_ever(self) -> None:
        while True:
            await self._wake.wait()
            # One loop step at least, so that everybody who was woken with us is in the same request.
            await self._pace.step()
            batch = self._take()
            try:
                async with asyncio.timeout(self._timeout):
                    heads = await self._agent.heads(list(batch))
            except TimeoutError:
                _fail(batch, AgentUnavailable())
            except TurnlogError as error:
                _fail(batch, error)
            except Exception:  # noqa: BLE001 - root of a task: whoever waits comes again, and so do checks
                _log.exception("heads unknown", sessions=len(batch))
                _fail(batch, AgentUnavailable())
            except BaseException:
                _fail(batch, AgentUnavailable())
                raise
            else:
                for session_id, asked in batch.items():
                    head = heads.heads.get(session_id)
                    if head is not None:
                        self._learn(session_id, head, heads.epoch)
                    _settle(asked, SessionNotFound() if head is None else Stand(head, heads.epoch))

    def _take(self) -> "dict[str, Future[Stand] | None]":
        batch = self._wanted
        if len(batch) > _BATCH:
            batch = dict(list(batch.items())[:_BATCH])
        self._wanted = {i: asked for i, asked in self._wanted.items() if i not in batch} if batch else {}
        if not self._wanted:
            self._wake.clear()
        return batch


def _fail(batch: "dict[str, Future[Stand] | None]", error: Exception) -> None:
    for asked in batch.values():
        _settle(asked, error)


def _settle(asked: "Future[Stand] | None", answer: Stand | Exception) -> None:
    if asked is None or asked.done():
        return
    if isinstance(answer, Exception):
        asked.set_exception(answer)
        asked.exception()  # whoever asked may be gone
    else:
        asked.set_result(answer)
