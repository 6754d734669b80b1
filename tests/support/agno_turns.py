"""Turns of Agno components on the store in memory: each leg on a component and a runtime of its own, as in another
process, and crashes behind any command of the executor."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from domain import commands, replies
from domain.clock import rfc3339
from domain.commands import Command
from domain.errors import NothingToClaim, StaleFence
from domain.events.envelope import StoredEvent
from domain.ids import CommandKey, SessionId, TurnId
from domain.parts import Answer, TextPart
from domain.ports import Outcome
from infra.system import SystemIds
from services.gateway.dialects.agentos.component import Component, Kind
from services.gateway.dialects.agentos.fold import Fold
from services.gateway.dialects.agentos.order import InOrder, envelope_of
from services.gateway.dialects.agentos.run import Run
from services.worker.executor.executor import Executor
from services.worker.hooks.hook import Hooks
from services.worker.runtimes.agno import AgnoRuntime
from services.worker.runtimes.agno.journal import Entry
from tests.support.collector import WORKER, Collector, Shown
from tests.support.execution import Bench

_entries = msgspec.json.Decoder(Entry)


class Mortal(Collector):
    """After `left` more commands of an executor nothing of it is committed any more; `dead` is set then."""

    def __init__(self, published: list[tuple[str, bytes]]) -> None:
        super().__init__()
        self._published = published
        self.left: int | None = None
        self.dead = asyncio.Event()
        self.buried = asyncio.Event()

    async def execute(self, command: Command, *, deadline: float | None = None) -> Outcome:
        if isinstance(command, commands.ExecutorCommand) and self.left is not None:
            if self.left == 0:
                self.dead.set()
                await self.buried.wait()
                raise StaleFence()
            self.left -= 1
        known = len(self.events)
        try:
            return await super().execute(command, deadline=deadline)
        finally:
            self._published += [("event", wire_of(event)) for event in self.events[known:]]


class _Shown(Shown):
    def __init__(self, published: list[tuple[str, bytes]]) -> None:
        super().__init__()
        self._published = published

    def publish_live(self, session_id: SessionId, item_id: str, frame: bytes) -> None:
        self._published.append(("live", frame))


def wire_of(event: StoredEvent) -> bytes:
    """As it stands in replay pages."""
    return msgspec.json.encode(
        {
            "session_id": event.session_id,
            "sequence": event.sequence,
            "event_id": event.event_id,
            "type": event.type,
            "schema_version": event.schema_version,
            "turn_id": event.turn_id,
            "created_at": rfc3339(event.created_at),
            "data": msgspec.Raw(event.payload),
        }
    )


class Turns:
    """One session. `make` builds the component: called anew for each leg."""

    def __init__(self, make: Callable[[], Any], *, hooks_in_background: bool = False, **runtime: Any) -> None:
        self._make = make
        self._options = {"hooks_in_background": hooks_in_background, **runtime}
        self.bench = Bench(self._runtime())
        self.published: list[tuple[str, bytes]] = []
        """Envelopes of committed events and temporary frames, as they went out."""
        self.store = self.bench.store = Mortal(self.published)
        self.bench.shown = _Shown(self.published)
        self._ids = SystemIds()

    def _runtime(self) -> AgnoRuntime:
        return AgnoRuntime(self._make(), "x", **self._options)

    def fresh(self, claim: replies.ClaimedTurn) -> Executor:
        """An executor in another process."""
        self.bench.runtime = runtime = self._runtime()
        self.bench.hooks = runtime.hooks
        return self.bench.of(claim)

    def fresh_hooks(self) -> Hooks:
        """Those of a runtime in another process."""
        return self._runtime().hooks

    async def begin(self, text: str = "go", **options: Any) -> Executor:
        """A turn submitted and claimed."""
        if not self.store.events:
            await self.store.create()
        turn_id = TurnId(self._ids.uuid7())
        await self.store.execute(
            commands.SubmitTurn(
                session_id=self.store.session_id,
                key=CommandKey(turn_id),
                turn_id=turn_id,
                input=[TextPart(text)],
                **options,
            )
        )
        return self.fresh(await self.claim())

    async def run(self, text: str = "go", **options: Any) -> str:
        """To its end, or its pause."""
        executor = await self.begin(text, **options)
        await executor.run()
        return executor.claim.turn_id

    async def claim(self) -> replies.ClaimedTurn:
        """For a worker that takes over what another one has left."""
        claim = await self._claimed()
        assert claim is not None
        return claim

    async def try_claim(self) -> Executor | None:
        """None where recovery has ended the turn."""
        claim = await self._claimed()
        return None if claim is None else self.fresh(claim)

    async def _claimed(self) -> replies.ClaimedTurn | None:
        command = commands.ClaimTurn(
            session_id=self.store.session_id, key=CommandKey(self._ids.uuid7()), worker_id=WORKER, take_over=True
        )
        try:
            return (await self.store.run(command, replies.ClaimReply)).claim
        except NothingToClaim:
            return None

    async def give(self, turn: str, answers: dict[str, Answer]) -> None:
        """People answer."""
        command = commands.ContinueTurn(
            session_id=self.store.session_id, key=CommandKey(self._ids.uuid7()), turn_id=TurnId(turn), answers=answers
        )
        await self.store.execute(command)

    async def answer(self, turn: str, answers: dict[str, Answer]) -> None:
        """People answer, and another process goes on."""
        await self.give(turn, answers)
        await self.take_over()

    async def die_after(self, executor: Executor, count: int) -> bool:
        """Lose the worker when so many of its commands are committed. False where it came to its end before."""
        self.store.left, self.store.dead, self.store.buried = count, asyncio.Event(), asyncio.Event()
        running = asyncio.create_task(executor.run())
        dying = asyncio.create_task(self.store.dead.wait())
        await asyncio.wait((running, dying), return_when=asyncio.FIRST_COMPLETED)
        died = not running.done()
        executor.lost()
        self.store.buried.set()
        await running
        dying.cancel()
        self.store.left = None
        if died:
            self.store.state.claim = None
        return died

    async def take_over(self) -> None:
        """The next leg or attempt, to its end or pause."""
        executor = await self.try_claim()
        if executor is not None:
            await executor.run()

    # What the log says -----------------------------------------------------------------------------------------------

    def end(self, turn: str) -> Any:
        """Its terminal event, or its pause."""
        return [e for e in self.store.events if e.turn_id == turn and e.type.startswith("turn.")][-1].event()

    def output(self, turn: str) -> str:
        (done,) = self.store.data(turn, "turn.completed")
        return str(done.output)

    def asks(self, turn: str) -> list[Any]:
        """Requirements of the last pause."""
        return list(self.store.data(turn, "turn.paused")[-1].requirements)

    def results(self, turn: str) -> list[tuple[str, bool]]:
        return [(one.output, one.is_error) for one in self.store.data(turn, "tool_result.snapshot") if one.final]

    def named(self, turn: str) -> list[str]:
        """Names of runtime events."""
        return [event.name for event in self.store.data(turn, "runtime.event")]

    def entries(self, turn: str) -> list[Entry]:
        """The private state, checkpoint by checkpoint."""
        found = [e for e in self.store.events if e.turn_id == turn and e.type == "checkpoint.reached"]
        return [_entries.decode(event.private or b"") for event in found]

    def ended_before(self, turn: str) -> bool:
        """Its last checkpoint was there when its last attempt began."""
        types = self.store.types(turn)
        last = len(types) - 1 - types[::-1].index("turn.started")
        entries = self.entries(turn)
        return entries[-1].ended == "end" and "checkpoint.reached" not in types[last:]


def yes(**changed: Any) -> Answer:
    return Answer(approved=True, by="ann", **changed)


def no(note: str | None = None) -> Answer:
    return Answer(approved=False, by="ann", note=note)


def folded(published: Iterable[tuple[str, bytes]], turn: str, kind: Kind) -> list[dict[str, Any]]:
    """What AgentOS clients see of what was published."""
    component = Component(agent_id="x", name="X", component=kind)
    order, fold = InOrder(turn), Fold(Run(component, turn, "my-run", "my-session"))
    made: list[dict[str, Any]] = []
    for of, wire in published:
        for placed in order.event(envelope_of(wire)) if of == "event" else order.live(wire):
            made += fold.apply(placed)
    return made
