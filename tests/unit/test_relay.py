"""What the relay takes for due."""

from domain.commands import CreateSession
from domain.ids import CommandKey, SessionId
from domain.ports import FeedPosition, Publication
from infra.memory.clock import CountingIds, ManualClock
from infra.memory.notifier import MemoryNotifier
from infra.memory.pipeline import MemoryPipeline
from infra.memory.store import MemoryEventStore
from services.projector.relay import Relay


class Checkpoints:
    def __init__(self) -> None:
        self.at: FeedPosition | None = None

    async def load(self, name: str) -> FeedPosition | None:
        return self.at

    async def begin(self, name: str, at: FeedPosition) -> bool:
        self.at = at
        return True

    async def advance(self, name: str, before: FeedPosition, after: FeedPosition) -> bool:
        self.at = after
        return True


class Nothing:
    """EVENTS holds nothing."""

    current = True
    made: float | None = None

    def take(self, message_id: str) -> bool:
        return False


class Publisher:
    def __init__(self) -> None:
        self.published: list[Publication] = []

    async def publish(self, publications: list[Publication]) -> None:
        self.published += publications

    async def purge(self, session_id: SessionId) -> None: ...


async def test_an_event_from_the_future_keeps_nobody_waiting() -> None:
    """One machine's clock was hours ahead when it committed; the events of everybody come after that one in the
    feed."""
    store, clock, ids, publisher = MemoryEventStore(), ManualClock(), CountingIds(), Publisher()
    pipeline = MemoryPipeline(store, notifier=MemoryNotifier(), clock=clock, ids=ids)

    async def create() -> SessionId:
        session = SessionId(ids.uuid7())
        await pipeline.execute(CreateSession(session_id=session, key=CommandKey("c"), agent_id="a"))
        return session

    clock.advance(7200)
    ahead = await create()
    clock.set_back(7200)
    other = await create()
    relay = Relay(store, Checkpoints(), Nothing(), publisher, clock, patience=5.0, oldest=600.0, poll=1.0, batch=10)
    clock.advance(1.0)
    await relay._step()
    assert [told.session_id for told in publisher.published] == [ahead], "the other's publisher may still do it"
    clock.advance(5.0)
    await relay._step()
    assert [told.session_id for told in publisher.published] == [ahead, other]


async def test_an_events_that_is_new_gets_what_it_would_hold_and_no_more() -> None:
    """The kept place lies behind everything; the relay goes back once for each EVENTS, ten minutes at most."""
    store, clock, ids, publisher = MemoryEventStore(), ManualClock(), CountingIds(), Publisher()
    pipeline = MemoryPipeline(store, notifier=MemoryNotifier(), clock=clock, ids=ids)
    sessions = [SessionId(ids.uuid7()) for _ in range(3)]
    for session in sessions:
        await pipeline.execute(CreateSession(session_id=session, key=CommandKey("c"), agent_id="a"))
        clock.advance(400.0)
    stored, checkpoints = Nothing(), Checkpoints()
    relay = Relay(store, checkpoints, stored, publisher, clock, patience=5.0, oldest=600.0, poll=1.0, batch=10)
    await relay._step()
    first = [told.session_id for told in publisher.published]
    assert first == [sessions[2]], "the others are older than anything EVENTS keeps"
    place = checkpoints.at
    await relay._step()
    assert len(publisher.published) == 1
    stored.made = clock.now() / 1_000_000
    await relay._step()
    assert [told.session_id for told in publisher.published] == [*first, sessions[2]]
    assert checkpoints.at == place, "the kept place never goes back"
    await relay._step()
    assert len(publisher.published) == 2
    stored.made = clock.now() / 1_000_000 - 601
    await relay._step()
    assert len(publisher.published) == 2, "an old EVENTS that was only reached anew lost nothing"
