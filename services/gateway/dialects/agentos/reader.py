"""One run read from the log, and then live: the same events in the same order, whoever asks and whenever."""

from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import msgspec

from domain.commands import ResumeQueue
from domain.errors import QueueNotPaused, Unavailable
from domain.ids import CommandKey, SessionId
from services.gateway.agent_client import AgentClient
from services.gateway.dialects.agentos.fold import Fold
from services.gateway.dialects.agentos.order import Envelope, InOrder, envelope_of, envelopes_of
from services.gateway.dialects.agentos.run import Run
from services.gateway.dialects.agentos.watch import Watch

Event = dict[str, Any]


class _Turn(msgspec.Struct, frozen=True):
    turn_id: str | None = None


_decode_turn = msgspec.json.Decoder(_Turn).decode


class RunReader:
    """`cursor` is the last sequence of the session that went through the fold. `held_up`: while the run waited in the
    queue, another one paused before it. Whoever reads a run that waits opens a queue that another run's failure has
    paused: AgentOS's callers know of no queue. `by`: who that is."""

    def __init__(self, agent: AgentClient, run: Run, session_id: str, first_sequence: int, by: str) -> None:
        self.run = run
        self.fold = Fold(run)
        self.cursor = first_sequence - 1
        self.held_up = False
        self._agent = agent
        self._session_id = session_id
        self._by = by
        self._queue_paused_at = 0
        self._order = InOrder(run.turn_id)

    async def load(self, upto: int | None = None) -> list[Event]:
        """Everything that is committed of it, up to the head or that sequence. Raises SessionNotFound, Unavailable."""
        made: list[Event] = []
        while upto is None or self.cursor < upto:
            page = await self._agent.page(self._session_id, self.cursor, "json")
            if page.last == self.cursor:
                break
            for envelope in envelopes_of(page.body):
                made += self.take(envelope)
            self.cursor = page.last
            if page.last >= page.head:
                break
        await self._open_queue()
        return made

    def take(self, envelope: Envelope) -> list[Event]:
        """What a committed event of the session, the next one, says of the run."""
        self._queue(envelope.type, envelope.sequence)
        return [event for placed in self._order.event(envelope) for event in self.fold.apply(placed)]

    async def follow(self, watch: Watch, seconds: float) -> AsyncGenerator[list[Event], None]:
        """What comes after the cursor, as it comes; an empty list after each such time of silence. Ends with the run,
        with a pause, and when the watch ends."""
        while not self.run.ended():
            blocks = await watch.next(seconds)
            if blocks is None:
                return
            made: list[Event] = []
            for type_, data in blocks:
                if type_.startswith("stream."):
                    continue
                made += self._take(type_, data)
                if self.run.ended():
                    break
            await self._open_queue()
            yield made

    def _take(self, type_: str, data: bytes) -> list[Event]:
        if _decode_turn(data).turn_id != self.run.turn_id:
            if type_.startswith("session.queue_"):
                self._queue(type_, envelope_of(data).sequence)
            self.held_up = self.held_up or (type_ == "turn.paused" and self.run.status == "queued")
            return []
        made: list[Event] = []
        if b'"event_id":' in data[:300]:
            envelope = envelope_of(data)
            if envelope.sequence <= self.cursor:
                return []
            self.cursor = envelope.sequence
            placed = self._order.event(envelope)
        else:
            placed = self._order.live(data)
        for one in placed:
            made += self.fold.apply(one)
        return made

    def _queue(self, type_: str, sequence: int) -> None:
        if type_ == "session.queue_paused":
            self._queue_paused_at = sequence
        elif type_ == "session.queue_resumed":
            self._queue_paused_at = 0

    async def _open_queue(self) -> None:
        if not self._queue_paused_at or self.run.status != "queued":
            return
        # One key for one pause: of any number of readers one opens it, and only this pause.
        key = CommandKey(f"agentos:{self._session_id}:{self._queue_paused_at}")
        self._queue_paused_at = 0
        command = ResumeQueue(session_id=SessionId(self._session_id), key=key, by=self._by)
        with suppress(QueueNotPaused, Unavailable):
            await self._agent.execute(command)


async def read_together(agent: AgentClient, session_id: str, readers: list[RunReader]) -> None:
    """Everything that is committed of several runs of one session, by one pass over its log. Raises as `load`."""
    by_turn = {reader.run.turn_id: reader for reader in readers}
    after = 0
    while by_turn:
        page = await agent.page(session_id, after, "json")
        for envelope in envelopes_of(page.body):
            if envelope.turn_id in by_turn:
                by_turn[envelope.turn_id].take(envelope)
        if page.last >= page.head or page.last == after:
            return
        after = page.last
