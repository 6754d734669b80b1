"""The newest events of sessions with viewers, as ready blocks: what a storm of reconnects asks for again and again."""

from collections import OrderedDict
from typing import NamedTuple

from services.gateway.sse.ports import ReplayPage

_COST = 80
"""Bytes of bookkeeping an event costs beside its own."""

_JOINED = 16
"""Different cursors whose page is kept until the next event comes."""

_WHOLE = 8
"""Pages of older events that are kept beside the newest ones, in the size of those."""

_ERASED = b"\nevent: session.erased\n"


class KeptPage(NamedTuple):
    """A `ReplayPage` that was not read for whoever asks. `head`: of what is kept, not of the session."""

    first: int
    last: int
    head: int
    closed: bool
    body: bytes


class Tails:
    """Bytes that the tails of all sessions of a process may take. Whichever was left alone for longest goes first."""

    def __init__(self, limit: int) -> None:
        self.used = 0
        self._limit = limit
        self._tails: OrderedDict[Tail, None] = OrderedDict()

    def grow(self, tail: "Tail", size: int) -> None:
        """That one was given so much, and is the last to go now."""
        self.used += size
        self._tails[tail] = None
        self._tails.move_to_end(tail)
        while self.used > self._limit and self._tails:
            next(iter(self._tails)).clear()

    def shrink(self, tail: "Tail", size: int, *, gone: bool) -> None:
        """That one has let go so much, or everything."""
        self.used -= size
        if gone:
            self._tails.pop(tail, None)


class Tail:
    """Events `first..last` of one session without a gap, `most` bytes of them, and some full pages of older ones as
    they were read. Committed events never change, so a page made of them is what the store would give, but for an
    erase: whoever learns of one clears."""

    __slots__ = ("_blocks", "_joined", "_most", "_size", "_tails", "_whole", "_whole_size", "first", "last")

    def __init__(self, tails: Tails, most: int) -> None:
        self.first = 1
        self.last = 0
        self._tails = tails
        self._most = most
        self._size = 0
        self._blocks: list[bytes] = []
        self._joined: dict[int, KeptPage] = {}
        self._whole: OrderedDict[int, ReplayPage] = OrderedDict()
        self._whole_size = 0

    def append(self, sequence: int, block: bytes) -> None:
        """A committed event as a block. One that is not next begins anew."""
        if self._blocks and sequence != self.last + 1:
            if sequence <= self.last:
                return
            self._begin_anew()
        if not self._blocks:
            self.first = sequence
        self._blocks.append(block)
        self.last = sequence
        self._took(len(block) + _COST)

    def add(self, page: ReplayPage) -> None:
        """What the store gave."""
        if not page.body:
            return
        if _ERASED in page.body:
            self.clear()
        if page.last < page.head:
            self._keep_whole(page)
        elif page.last <= self.last:
            self._prepend(page)
        else:
            for sequence, block in enumerate(_blocks_of(page), start=page.first):
                self.append(sequence, block)

    def after(self, cursor: int) -> KeptPage | None:
        """What follows that cursor, where it is here; the same bytes for all who ask before the next event."""
        if self.first - 1 <= cursor < self.last:
            kept = self._joined.get(cursor)
            if kept is None:
                body = b"".join(self._blocks[cursor + 1 - self.first :])
                kept = KeptPage(cursor + 1, self.last, self.last, False, body)
                if len(self._joined) < _JOINED:
                    self._joined[cursor] = kept
            return kept
        for page in self._whole.values():
            if page.first <= cursor + 1 <= page.last:
                at = 0 if page.first == cursor + 1 else page.body.find(b"\n\nid: %d\n" % (cursor + 1)) + 2
                return KeptPage(cursor + 1, page.last, page.head, False, page.body[at:])
        return None

    def clear(self) -> None:
        """Keep nothing."""
        self._begin_anew()
        self._tails.shrink(self, self._whole_size, gone=True)
        self._whole.clear()
        self._whole_size = 0

    def _begin_anew(self) -> None:
        self._tails.shrink(self, self._size, gone=False)
        self._size = 0
        self._blocks = []
        self._joined = {}
        self.first, self.last = 1, 0

    def _keep_whole(self, page: ReplayPage) -> None:
        if page.first - 1 in self._whole:
            return
        while self._whole and self._whole_size + len(page.body) > _WHOLE * self._most:
            size = len(self._whole.popitem(last=False)[1].body)
            self._whole_size -= size
            self._tails.shrink(self, size, gone=False)
        self._whole[page.first - 1] = page
        self._whole_size += len(page.body)
        self._tails.grow(self, len(page.body))

    def _prepend(self, page: ReplayPage) -> None:
        """Older events, as many of the newest of them as there is room for."""
        if not page.first < self.first <= page.last + 1:
            return
        older = _blocks_of(page)[: self.first - page.first]
        fits = 0
        room = self._most - self._size
        while fits < len(older) and room >= len(older[-1 - fits]) + _COST:
            room -= len(older[-1 - fits]) + _COST
            fits += 1
        if fits:
            self._blocks[:0] = older[-fits:]
            self.first -= fits
            self._took(self._most - self._size - room)

    def _took(self, size: int) -> None:
        self._joined.clear()
        self._size += size
        self._tails.grow(self, size)
        if self._size > self._most:
            self._let_go()

    def _let_go(self) -> None:
        """The oldest events, a quarter at once, so that it need not be done for each."""
        gone = count = 0
        while count < len(self._blocks) and self._size - gone > self._most * 3 // 4:
            gone += len(self._blocks[count]) + _COST
            count += 1
        if count == len(self._blocks):
            self._begin_anew()
            return
        del self._blocks[:count]
        self.first += count
        self._size -= gone
        self._tails.shrink(self, gone, gone=False)


def _blocks_of(page: ReplayPage) -> list[bytes]:
    return [block + b"\n\n" for block in page.body.split(b"\n\n")[:-1]]
