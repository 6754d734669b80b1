"""Reading the temporary frames of a session's open items, as somebody needs them who joins in mid-item.

By batched direct get (server 2.11 or newer), which nats-py does not wrap: one request, many replies to one inbox,
ended by a status; some 2 ms.
"""

import asyncio
import contextlib
import secrets
from asyncio import Future
from collections.abc import AsyncIterator
from itertools import count
from typing import NamedTuple

import msgspec
from nats.errors import Error as NatsError

from domain.ids import SessionId
from infra.nats.cancellation import heed_cancellation
from infra.nats.client import Message
from infra.nats.connection import BrokerConnection, NotConnected
from infra.nats.headers import header_fields
from infra.nats.subjects import Subjects

_BATCH = 500
_PAGE_BYTES = 4 << 20
_PAGES = 16
_TIMEOUT_SECONDS = 1.0
_PENDING_HEADER = "Nats-Num-Pending"
_ROLLUP_HEADER = "Nats-Rollup"
_SUBJECT_HEADER = "Nats-Subject"
_SEQUENCE_HEADER = "Nats-Sequence"
_STATUS_END = "204"
_STATUS_NOTHING = ("404", "503")  # no such message; no such stream, which is being made again


class LiveUnavailable(Exception):
    """The broker did not give the open items: viewers wait for the items' completion."""


class LiveFrame(NamedTuple):
    """A temporary frame as it was published. `snapshot`: a roll-up, which stands for all earlier frames of its item."""

    item_id: str
    frame: bytes
    snapshot: bool


class _Request(msgspec.Struct):
    next_by_subj: str
    seq: int
    batch: int
    max_bytes: int


class _Page:
    """Replies to one request, until the status that ends them."""

    def __init__(self) -> None:
        self.messages: list[tuple[dict[str, str], bytes]] = []
        self.more: Future[int] = asyncio.get_running_loop().create_future()

    def add(self, message: Message) -> None:
        status, fields = header_fields(message.headers)
        if not status:
            self.messages.append((fields, message.data))
        elif status == _STATUS_END:
            self._end(int(fields.get(_PENDING_HEADER, "0")))
        elif status in _STATUS_NOTHING:
            self._end(0)
        else:
            self.fail()

    def fail(self) -> None:
        if not self.more.done():
            self.more.set_exception(LiveUnavailable())

    def _end(self, more: int) -> None:
        if not self.more.done():
            self.more.set_result(more)


class LiveReader:
    """Reads LIVE. Any number of reads may be under way."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        self._subjects = Subjects(connection.options.namespace)
        self._request_subject = f"$JS.API.DIRECT.GET.{self._subjects.live_stream}"
        # Processes of a role share a user and so an inbox prefix: ours has a name of its own below it.
        self._inbox = f"{connection.options.inbox_prefix}.live-{secrets.token_hex(8)}"
        self._tokens = count(1)
        self._pages: dict[str, _Page] = {}

    async def open_frames(self, session_id: SessionId) -> list[LiveFrame]:
        """The frames that LIVE holds of this session, in the order of their publication: of each item its newest
        snapshot and what followed, and perhaps older ones. Bounded: of a session with more than 16 pages the rest is
        left out.

        Raises LiveUnavailable, InvalidToken.
        """
        frames: list[LiveFrame] = []
        sequence, more = 1, 1
        for _ in range(_PAGES):
            messages, more = await self._page(self._subjects.live_of(session_id), sequence)
            for fields, data in messages:
                _collect(frames, fields, data)
            if not more or not messages:
                break
            sequence = int(messages[-1][0][_SEQUENCE_HEADER]) + 1
        return frames

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator["LiveReader"]:
        """Replies arrive as long as the block."""
        binding = await self._connection.subscribe(f"{self._inbox}.*", self._on_reply, self._on_gap)
        try:
            yield self
        finally:
            binding.close()
            self._on_gap()

    async def _page(self, subject: str, sequence: int) -> tuple[list[tuple[dict[str, str], bytes]], int]:
        token, page = str(next(self._tokens)), _Page()
        request = _Request(next_by_subj=subject, seq=sequence, batch=_BATCH, max_bytes=_PAGE_BYTES)
        self._pages[token] = page
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                await self._connection.client.publish(
                    self._request_subject, msgspec.json.encode(request), reply=f"{self._inbox}.{token}"
                )
                heed_cancellation()
                more = await page.more
        except (NotConnected, NatsError, OSError, TimeoutError) as error:
            raise LiveUnavailable from error
        finally:
            del self._pages[token]
        return page.messages, more

    def _on_reply(self, message: Message) -> None:
        page = self._pages.get(message.subject.rpartition(b".")[2].decode())
        if page is not None:
            page.add(message)

    def _on_gap(self) -> None:
        for page in self._pages.values():
            page.fail()


def _collect(frames: list[LiveFrame], fields: dict[str, str], data: bytes) -> None:
    item_id = fields[_SUBJECT_HEADER].rpartition(".")[2]
    if data:
        frames.append(LiveFrame(item_id, data, _ROLLUP_HEADER in fields))
    else:  # the item was completed; this mark goes by itself
        frames[:] = [frame for frame in frames if frame.item_id != item_id]


@contextlib.asynccontextmanager
async def open_live_reader(connection: BrokerConnection) -> AsyncIterator[LiveReader]:
    """A reader that can read as long as the block."""
    async with LiveReader(connection).listening() as reader:
        yield reader
