"""A store in memory for tests of execution: runs the domain's own decisions, one session, no grouping."""

import asyncio
import copy
from collections.abc import Sequence as Many
from typing import Any, TypeVar

import msgspec

from domain import commands, replies
from domain.commands import Command, SubmitTurn
from domain.decisions import Limits, decide
from domain.errors import Unavailable
from domain.events import registry
from domain.events.envelope import StoredEvent
from domain.ids import CommandKey, EventId, Micros, Sequence, SessionId, TurnId, WorkerId
from domain.parts import FilePart, TextPart
from domain.ports import Outcome, Publication
from domain.session import SessionState
from domain.turn import Turn
from infra.system import SystemClock, SystemIds

R = TypeVar("R")

WORKER = WorkerId("00000000-0000-7000-8000-000000000001")


class Shown:
    """A notifier that keeps what it is given, in order."""

    def __init__(self) -> None:
        self.live: list[bytes] = []
        self.rolled_up: list[bytes] = []

    def publish_events(self, publications: Many[Publication]) -> None: ...

    def publish_live(self, session_id: SessionId, item_id: str, frame: bytes) -> None:
        self.live.append(frame)

    def publish_snapshot(self, session_id: SessionId, item_id: str, frame: bytes) -> None:
        (self.rolled_up if b'"type":"item.snapshot"' in frame else self.live).append(frame)

    def clear_live(self, session_id: SessionId, item_id: str) -> None: ...

    def wake(self, pool: str) -> None: ...

    def signal(self, turn_id: TurnId, message: bytes) -> None: ...

    def control(self, session_id: SessionId, message: bytes) -> None: ...


class SteadyLease:
    """A lease that is never lost."""

    def __init__(self) -> None:
        self.touches: list[str] = []

    def deadline(self) -> float:
        return SystemClock().monotonic() + 3600

    async def ahead(self) -> None: ...

    def touched(self, turn_id: str) -> None:
        self.touches.append(turn_id)


class Collector:
    """Implements CommandPipeline and TurnLog for one session."""

    def __init__(self) -> None:
        self.session_id = SessionId(SystemIds().uuid7())
        self.state = SessionState(session_id=self.session_id)
        self.events: list[StoredEvent] = []
        self.commands: list[Command] = []
        self.kept: dict[str, bytes] = {}
        self.faults: list[BaseException] = []
        """Raised instead of an answer, after the commit where it is Unavailable."""
        self.delay = 0.0
        self._ids = SystemIds()
        self._clock = SystemClock()
        self._lock = asyncio.Lock()

    async def execute(self, command: Command, *, deadline: float | None = None) -> Outcome:
        async with self._lock:
            if self.delay and isinstance(command, commands.ExecutorCommand):
                await asyncio.sleep(self.delay)
            fault = self.faults.pop(0) if self.faults and isinstance(command, commands.ExecutorCommand) else None
            if fault is not None and not isinstance(fault, Unavailable):
                raise fault
            outcome = self._commit(command)
            if fault is not None:
                raise fault
            return outcome

    async def run(self, command: Command, reply: type[R]) -> R:
        """Execute, decode the reply."""
        return msgspec.json.decode((await self.execute(command)).reply, type=reply)

    def _commit(self, command: Command) -> Outcome:
        if command.key in self.kept:
            return Outcome(self.kept[command.key], replayed=True)
        scratch = copy.deepcopy(self.state)
        at = self._clock.now()
        decision = decide(scratch, command, at, Limits())
        if decision.claim is not None:
            scratch.claim = decision.claim
        last = self.events[-1].sequence if self.events else 0
        for offset, draft in enumerate(decision.events, 1):
            self.events.append(self._stored(draft, last + offset, at))
        self.state = scratch
        reply = msgspec.json.encode(decision.reply)
        self.kept[command.key] = reply
        self.commands.append(command)
        return Outcome(reply)

    def _stored(self, draft: Any, sequence: int, at: Micros) -> StoredEvent:
        return StoredEvent(
            session_id=self.session_id,
            sequence=Sequence(sequence),
            event_id=EventId(self._ids.uuid7()),
            type=draft.data.type,
            schema_version=draft.data.schema_version,
            turn_id=draft.turn_id,
            created_at=at,
            payload=registry.encode(draft.data),
            private=draft.private,
            salt=b"",
            payload_digest=b"",
            private_digest=None,
            metadata=b"{}",
            hash=b"",
        )

    async def create(self, agent_id: str = "test") -> None:
        await self.execute(
            commands.CreateSession(session_id=self.session_id, key=CommandKey("create"), agent_id=agent_id)
        )

    async def submit(self, text: str, *files: FilePart) -> TurnId:
        turn_id = TurnId(self._ids.uuid7())
        await self.execute(
            SubmitTurn(
                session_id=self.session_id,
                key=CommandKey(turn_id),
                turn_id=turn_id,
                input=[TextPart(text), *files],
            )
        )
        return turn_id

    async def claim(self) -> replies.ClaimedTurn:
        outcome = await self.execute(
            commands.ClaimTurn(session_id=self.session_id, key=CommandKey(self._ids.uuid7()), worker_id=WORKER)
        )
        claim = msgspec.json.decode(outcome.reply, type=replies.ClaimReply).claim
        assert claim is not None
        return claim

    async def turn_chain(self, session_id: SessionId, turn_id: TurnId) -> list[Turn]:
        chain: list[Turn] = []
        turn = self.state.turns.get(turn_id)
        while turn is not None:
            chain.append(turn)
            turn = None if turn.parent_turn_id is None else self.state.turns[turn.parent_turn_id]
        return chain

    async def turn_events(self, session_id: SessionId, turn_id: TurnId) -> list[StoredEvent]:
        return [event for event in self.events if event.turn_id == turn_id]

    async def turn_states(self, session_id: SessionId, turn_ids: Many[TurnId]) -> list[StoredEvent]:
        wanted = {"turn.queued", "turn.input_rewritten", "checkpoint.reached"}
        return [event for event in self.events if event.turn_id in turn_ids and event.type in wanted]

    def types(self, turn_id: str) -> list[str]:
        return [event.type for event in self.events if event.turn_id == turn_id]

    def data(self, turn_id: str, type_: str) -> list[Any]:
        """Decoded payloads of that type."""
        return [event.event() for event in self.events if event.turn_id == turn_id and event.type == type_]
