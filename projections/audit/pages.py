"""Rows of other tables on their way beside a page of events: each waits for the event that it names."""

from bisect import bisect_right
from collections.abc import Callable
from collections.abc import Sequence as Many
from typing import Generic, TypeVar

import msgspec

from projections.audit.models import MESSAGE_PLACE, TURN_PLACE, Row
from projections.audit.replies import ReplyRow

T = TypeVar("T")

NEVER = 2**63


class Stored(msgspec.Struct, frozen=True):
    """What is stored of a session beside its events, each kind in the order of the sequence that its rows name."""

    turns: Many[Row] = ()
    messages: Many[Row] = ()
    replies: Many[ReplyRow] = ()


class Waiting(Generic[T]):
    """Rows of one kind; `next` is the sequence that the first one left names."""

    def __init__(self, rows: Many[T], place: Callable[[T], int]) -> None:
        self._rows = rows
        self._places = [place(row) for row in rows]
        self._at = 0
        self.next = self._places[0] if rows else NEVER

    def upto(self, sequence: int) -> Many[T]:
        """Take those that name a sequence up to that one."""
        if self.next > sequence:
            return ()
        begin, self._at = self._at, bisect_right(self._places, sequence, self._at)
        self.next = self._places[self._at] if self._at < len(self._rows) else NEVER
        return self._rows[begin : self._at]


class PageRows:
    """The rows of one page, of all kinds; `next` is the sequence that the first one left names, as of the last
    `look`."""

    def __init__(self, stored: Stored) -> None:
        self.turns: Waiting[Row] = Waiting(stored.turns, lambda row: int(row[TURN_PLACE]))
        self.messages: Waiting[Row] = Waiting(stored.messages, lambda row: int(row[MESSAGE_PLACE]))
        self.replies: Waiting[ReplyRow] = Waiting(stored.replies, lambda row: row.place)

        self.next = 0
        self.look()

    def look(self) -> None:
        """Rows were taken."""
        self.next = min(self.turns.next, self.messages.next, self.replies.next)
