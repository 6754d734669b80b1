"""An event store in memory: the second implementation that the contract suite holds the first one against."""

from collections import defaultdict
from collections.abc import Sequence as Many

import msgspec

from domain.errors import SessionNotFound
from domain.events.envelope import StoredEvent
from domain.ids import Micros, Sequence, SessionId, TurnId, WorkerId
from domain.ports import FeedPosition, Page
from domain.session import Claim, Head, SessionState
from infra.pipeline.batch import KeptReply, Loaded, SessionBatch, Tally


class _Stream(msgspec.Struct, kw_only=True):
    state: SessionState
    events: list[StoredEvent] = []
    replies: dict[str, KeptReply] = {}
    last_event_at: Micros = Micros(0)


class MemoryEventStore:
    """Implements `domain.ports.EventStore` and `Feed`. Nothing in it awaits, so every call is atomic on its loop."""

    def __init__(self) -> None:
        self._streams: dict[SessionId, _Stream] = {}
        self._feed: list[StoredEvent] = []
        self._open: dict[tuple[SessionId, TurnId], str] = {}
        self.live_workers: set[WorkerId] = set()
        """Workers whose lease runs; a claim of any other is dead."""

    async def page(self, session_id: SessionId, after: Sequence, limit_bytes: int, limit_events: int) -> Page:
        """See `EventStore.page`."""
        stream = self._streams.get(session_id)
        if stream is None:
            raise SessionNotFound(session_id=session_id)
        found: list[StoredEvent] = []
        size = 0
        for event in stream.events[after : after + limit_events]:
            size += len(event.payload)
            if found and size > limit_bytes:
                break
            found.append(event)
        return Page(found, Sequence(len(stream.events)))

    async def heads(self, session_ids: Many[SessionId]) -> dict[SessionId, Head]:
        """See `EventStore.heads`."""
        found = {}
        for session_id in session_ids:
            stream = self._streams.get(session_id)
            if stream is not None and stream.state.head is not None:
                found[session_id] = msgspec.structs.replace(stream.state.head)
        return found

    async def read(self, after: FeedPosition, limit: int) -> list[tuple[FeedPosition, StoredEvent]]:
        """See `Feed.read`. There are no open transactions here: every append is one, in order."""
        first = after.position
        return [
            (FeedPosition(position, position), event)
            for position, event in enumerate(self._feed[first : first + limit], start=first + 1)
        ]

    async def place_before(self, at: Micros) -> FeedPosition:
        """See `services.projector.relay.Past`."""
        fits = (number for number, event in enumerate(self._feed) if event.created_at >= at)
        early = next(fits, len(self._feed))
        return FeedPosition(early, early)

    def load(self, session_id: SessionId, now: Micros) -> Loaded:
        """What a decision needs at that time: all of the session's turns."""
        stream = self._streams.get(session_id)
        if stream is None:
            return Loaded(state=SessionState(session_id=session_id, turns={}), replies={}, now=now)
        claim = stream.state.claim
        if claim is not None:
            live = claim.worker_id in self.live_workers
            claim = Claim(turn_id=claim.turn_id, fence=claim.fence, worker_id=claim.worker_id, live=live)
        state = msgspec.structs.replace(stream.state, claim=claim)
        tallies: dict[str, Tally] = defaultdict(Tally)
        for owner in self._open.values():
            tallies[owner].open += 1
        return Loaded(state=state, replies=stream.replies, now=now, last_event_at=stream.last_event_at, tallies=tallies)

    def commit(self, batch: SessionBatch) -> None:
        """Take over what a batch decided."""
        if batch.state.head is None:
            return
        stream = self._streams.setdefault(batch.session_id, _Stream(state=batch.state))
        stream.state = batch.state
        stream.replies.update(batch.fresh_replies)
        for turn_id, owner in batch.begun().items():
            self._open[batch.session_id, turn_id] = owner
        for turn_id in batch.ended():
            self._open.pop((batch.session_id, turn_id), None)
        if batch.events:
            stream.last_event_at = batch.at
            stream.events += batch.events
            self._feed += batch.events
