"""Closing a jump in a session's number line: hold for a moment, then one replay for all who watch."""

import asyncio
from asyncio import Task
from typing import Protocol

import structlog

from domain.errors import SessionNotFound, Unavailable
from services.gateway.sse.limits import Limits
from services.gateway.sse.meter import Meter
from services.gateway.sse.pages import Pages
from services.gateway.sse.ports import ReplayPage
from services.gateway.sse.replays import Spawn

_log = structlog.get_logger(__name__)

_DOUBTS = 50
"""Empty replays in a row until what was told is not believed any more."""


class Line(Protocol):
    """The number line that is healed. Each call is one step without waiting."""

    @property
    def edge(self) -> int | None:
        """The last sequence that was accepted, None until the first head."""
        ...

    def fill(self, page: ReplayPage) -> None:
        """A page that closes the jump: viewers stay joined and miss no frame."""
        ...

    def skip(self, head: int) -> None:
        """A larger jump: every viewer pulls what it lacks."""
        ...

    def disbelieve(self) -> None:
        """What was told is not in the store."""
        ...


class Healing:
    """One task at most; what comes while it runs is held by the line, in order."""

    __slots__ = ("_doubts", "_limits", "_line", "_meter", "_pages", "_session_id", "_spawn", "_task", "_wanted")

    def __init__(self, session_id: str, line: Line, pages: Pages, limits: Limits, spawn: "Spawn", meter: Meter) -> None:
        self._session_id = session_id
        self._line = line
        self._pages = pages
        self._limits = limits
        self._spawn = spawn
        self._meter = meter
        self._wanted = 0
        self._doubts = 0
        self._task: Task[None] | None = None

    def want(self, sequence: int) -> None:
        """Somebody knows of that sequence: it is there soon, by itself or by a replay."""
        self._wanted = max(self._wanted, sequence)
        edge = self._line.edge
        if self._task is None and edge is not None and self._wanted > edge:
            self._task = self._spawn(self._heal())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _heal(self) -> None:
        pause, asked = self._limits.hold_seconds, False
        try:
            while True:
                await asyncio.sleep(pause)
                at = self._line.edge or 0
                if at >= self._wanted:
                    self._meter.healed["wait"] += not asked
                    return
                asked = True
                try:
                    pause = await self._heal_once(at)
                except SessionNotFound:
                    return
                except Unavailable as error:
                    pause = min(max(pause, 0.02) * 2, self._limits.heal_retry_seconds)
                    _log.warning("replay failed, trying again", session_id=self._session_id, after=at, error=error.code)
                except Exception:  # noqa: BLE001 - root of a task: the feed must go on trying
                    pause = self._limits.heal_retry_seconds
                    _log.exception("replay failed, trying again", session_id=self._session_id, after=at)
        finally:
            self._task = None

    async def _heal_once(self, at: int) -> float:
        """Seconds to wait before the next look."""
        page = await asyncio.shield(self._pages.ask(at))
        if self._line.edge != at:
            return 0.0
        if page.last == at:
            return self._doubt()
        self._doubts = 0
        if page.last >= page.head or page.last >= self._wanted:
            self._meter.healed["page"] += 1
            self._line.fill(page)
        else:
            self._meter.healed["pull"] += 1
            self._line.skip(page.head)
        return 0.0

    def _doubt(self) -> float:
        """The store lacks what was told: read before it was committed, or published by somebody who never committed it.
        Seconds to wait before the next look."""
        self._doubts += 1
        if self._doubts == _DOUBTS:
            _log.warning("told of events that are not in the store", session_id=self._session_id, wanted=self._wanted)
            self._doubts = self._wanted = 0
            self._line.disbelieve()
        return max(self._limits.hold_seconds, 0.01)
