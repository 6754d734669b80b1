"""Replay pages of one viewer before it asks for them.

Where a page ends is only known when it has come, unless it is asked for by a number of events that surely fits. That is
learnt from the pages before, so that two can be read side by side while a third is written."""

import asyncio
from asyncio import Future
from collections import deque
from typing import NamedTuple

from services.gateway.sse.pages import Pages
from services.gateway.sse.ports import ReplayPage

_PAGES = 2
"""On their way or waiting, beside the one that is written."""

_SURE = 0.9
"""Of the events that would fit if they were like those of the last page."""


class _Asked(NamedTuple):
    after: int
    upto: int
    page: "Future[ReplayPage]"


class Ahead:
    """The next pages after the one that came last, without a gap between them as far as events turn out as small as
    thought. What viewers ask for follows from the pages alone, so those who begin at one cursor share all of them."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._asked: deque[_Asked] = deque()
        self._largest = 0

    async def page(self, cursor: int) -> ReplayPage:
        """The page after that cursor. Raises SessionNotFound, Unavailable."""
        while self._asked and self._asked[0].after < cursor:
            # The page before was longer than what was asked for: it had been kept for others.
            self._asked.popleft()
        if not self._asked:
            return await self._pages.page(cursor)
        if self._asked[0].after > cursor:
            return await asyncio.shield(self._pages.ask(cursor, self._asked[0].after - cursor))
        return await asyncio.shield(self._asked.popleft().page)

    def look(self, page: ReplayPage) -> None:
        """Ask for what follows that page."""
        self._largest = max(self._largest, len(page.body))
        stride = max(1, int((page.last - page.first + 1) * self._largest / len(page.body) * _SURE))
        upto = self._asked[-1].upto if self._asked else page.last
        while len(self._asked) < _PAGES and upto < page.head:
            self._asked.append(_Asked(upto, upto + stride, self._pages.ask(upto, stride)))
            upto += stride

    def forget(self) -> None:
        """After a failure: whatever is asked next is asked afresh."""
        self._asked.clear()
