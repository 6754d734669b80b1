"""A store with its pipeline, and the commands that tests send most."""

from collections.abc import AsyncIterator
from collections.abc import Sequence as Many
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

import msgspec

from domain import commands, replies
from domain.clock import IdSource
from domain.commands import Command
from domain.events.envelope import Draft, StoredEvent
from domain.events.item import ItemCompleted, ItemFrames
from domain.ids import (
    CommandKey,
    Fence,
    FrameNumber,
    ItemId,
    Ordinal,
    Sequence,
    SessionId,
    TurnId,
    WorkerId,
)
from domain.parts import TextPart
from domain.ports import CommandPipeline, EventStore, Feed, Notifier, SessionProjection
from infra.memory.clock import ManualClock
from infra.memory.notifier import MemoryNotifier
from infra.memory.pipeline import MemoryPipeline
from infra.memory.store import MemoryEventStore
from infra.pipeline.pipeline import Pipeline
from infra.pipeline.pools import open_pipeline_pools
from infra.pipeline.settings import PipelineSettings
from infra.postgres.feed import PostgresFeed
from infra.postgres.pool import Pool
from infra.postgres.store import PostgresEventStore
from infra.postgres.workers import PostgresWorkers
from infra.system import SystemClock, SystemIds
from projections.serving import session_projections

R = TypeVar("R")
LEASE = 30.0


class Leases(Protocol):
    """Who is alive."""

    async def begin(self, worker_id: WorkerId) -> None: ...

    async def end(self, worker_id: WorkerId) -> None: ...


class MemoryLeases:
    def __init__(self, store: MemoryEventStore) -> None:
        self._store = store

    async def begin(self, worker_id: WorkerId) -> None:
        self._store.live_workers.add(worker_id)

    async def end(self, worker_id: WorkerId) -> None:
        self._store.live_workers.discard(worker_id)


class PostgresLeases:
    def __init__(self, pool: Pool) -> None:
        self._workers = PostgresWorkers(pool, LEASE)

    async def begin(self, worker_id: WorkerId) -> None:
        await self._workers.heartbeat(worker_id, [])

    async def end(self, worker_id: WorkerId) -> None:
        await self._workers.unregister(worker_id)


class Stand:
    """What a contract test works on: it sees nothing but the ports."""

    def __init__(
        self,
        pipeline: CommandPipeline,
        store: EventStore,
        feed: Feed,
        leases: Leases,
        notifier: MemoryNotifier,
        ids: IdSource,
        clock: ManualClock | None = None,
    ) -> None:
        """`clock`: the store's, where a test can set it."""
        self.pipeline = pipeline
        self.store = store
        self.feed = feed
        self.leases = leases
        self.notifier = notifier
        self.ids = ids
        self.clock = clock

    def key(self) -> CommandKey:
        return CommandKey(self.ids.uuid7())

    async def run(self, command: Command, reply: type[R]) -> R:
        """Execute, decode the reply."""
        return msgspec.json.decode((await self.pipeline.execute(command)).reply, type=reply)

    async def create(self, session_id: str | None = None) -> SessionId:
        session = SessionId(session_id or self.ids.uuid7())
        command = commands.CreateSession(session_id=session, key=CommandKey(f"create {session}"), agent_id="shout")
        await self.run(command, replies.SessionReply)
        return session

    def submission(self, session_id: SessionId, text: str = "hello", **more: Any) -> commands.SubmitTurn:
        fields: dict[str, Any] = {"key": self.key(), "turn_id": TurnId(self.ids.uuid7()), **more}
        return commands.SubmitTurn(session_id=session_id, input=[TextPart(text)], **fields)

    async def submit(self, session_id: SessionId, text: str = "hello", **more: Any) -> replies.QueuedReply:
        return await self.run(self.submission(session_id, text, **more), replies.QueuedReply)

    async def worker(self) -> WorkerId:
        """A worker whose lease runs."""
        worker_id = WorkerId(self.ids.uuid7())
        await self.leases.begin(worker_id)
        return worker_id

    async def claim(self, session_id: SessionId, worker_id: WorkerId) -> replies.ClaimedTurn:
        command = commands.ClaimTurn(session_id=session_id, key=self.key(), worker_id=worker_id)
        claimed = (await self.run(command, replies.ClaimReply)).claim
        assert claimed is not None
        return claimed

    def finish_of(self, claim: replies.ClaimedTurn, **more: Any) -> commands.FinishTurn:
        fields: dict[str, Any] = {"ordinal": Ordinal(1), "outcome": "completed", "output": "done", **more}
        return commands.FinishTurn(**self._executor(claim), attempt=claim.attempt, frame=claim.frame_base + 9, **fields)

    async def finish(self, claim: replies.ClaimedTurn, **more: Any) -> replies.ExecutorReply:
        return await self.run(self.finish_of(claim, **more), replies.ExecutorReply)

    def record_of(self, claim: replies.ClaimedTurn, events: list[Draft], ordinal: int = 1) -> commands.RecordEvents:
        return commands.RecordEvents(**self._executor(claim), ordinal=Ordinal(ordinal), events=events)

    async def record(self, claim: replies.ClaimedTurn, events: list[Draft], ordinal: int = 1) -> replies.ExecutorReply:
        return await self.run(self.record_of(claim, events, ordinal), replies.ExecutorReply)

    def _executor(self, claim: replies.ClaimedTurn) -> dict[str, Any]:
        return {
            "session_id": SessionId(claim.session_id),
            "key": self.key(),
            "turn_id": TurnId(claim.turn_id),
            "fence": Fence(claim.fence),
        }

    def text(self, claim: replies.ClaimedTurn, text: str, frame: int = 1, **more: Any) -> Draft:
        """A completed text item, two frames and no delta but one."""
        first = FrameNumber(claim.frame_base + frame)
        fields: dict[str, Any] = {
            "item_id": ItemId(self.ids.uuid7()),
            "message_id": self.ids.uuid7(),
            "kind": "text",
            **more,
        }
        data = ItemCompleted(
            attempt=claim.attempt,
            frame=first + 2,
            text=text,
            frames=ItemFrames(runs=[(first, 3)], cuts=[len(text)]),
            **fields,
        )
        return Draft(data, TurnId(claim.turn_id))

    async def events(self, session_id: SessionId) -> list[StoredEvent]:
        """The whole stream, by small pages."""
        found: list[StoredEvent] = []
        while True:
            page = await self.store.page(session_id, Sequence(len(found)), 10_000, 7)
            if not page.events:
                return found
            found += page.events

    async def types(self, session_id: SessionId) -> list[str]:
        return [event.type for event in await self.events(session_id)]


def memory_stand() -> Stand:
    """Everything in memory."""
    store, notifier, clock, ids = MemoryEventStore(), MemoryNotifier(), ManualClock(), SystemIds()
    pipeline = MemoryPipeline(store, notifier=notifier, clock=clock, ids=ids)
    return Stand(pipeline, store, store, MemoryLeases(store), notifier, ids, clock)


@asynccontextmanager
async def open_pipeline(
    dsn: str,
    *,
    notifier: Notifier | None = None,
    settings: PipelineSettings | None = None,
    projections: Many[SessionProjection] = session_projections(),
) -> AsyncIterator[Pipeline]:
    """A pipeline as a process has it; without a notifier it commits and tells nobody else."""
    bounds = settings or PipelineSettings()
    pools = await open_pipeline_pools(dsn, bounds)
    try:
        async with Pipeline(
            pools.groups,
            pools.waiting,
            projections=projections,
            notifier=notifier or MemoryNotifier(),
            clock=SystemClock(),
            ids=SystemIds(),
            settings=bounds,
        ) as pipeline:
            yield pipeline
    finally:
        await pools.close()


@asynccontextmanager
async def postgres_stand(
    dsn: str,
    pool: Pool,
    settings: PipelineSettings | None = None,
    projections: Many[SessionProjection] = session_projections(),
) -> AsyncIterator[Stand]:
    """The same on PostgreSQL: `dsn` for the pipeline, `pool` for reads."""
    notifier = MemoryNotifier()
    async with open_pipeline(dsn, notifier=notifier, settings=settings, projections=projections) as pipeline:
        yield Stand(pipeline, PostgresEventStore(pool), PostgresFeed(pool), PostgresLeases(pool), notifier, SystemIds())
