"""One slot of a worker: claim a session's turn, execute it, and go on with what its end claimed."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from typing import Protocol, cast

import msgspec
import structlog

from domain import commands, replies
from domain.errors import InternalFault, Rejection, StoreUnavailable, Unavailable, VersionMismatch
from domain.frames import RuntimeFrame
from domain.ids import CommandKey, SessionId, TurnId, WorkerId
from domain.runtime import Capabilities, Execution, KnowingRuntime, Runtime, RuntimeFailed
from infra.nats.subscriber import Subscription
from infra.postgres.workers import Startable
from services.worker.executor.executor import Executor, Tools
from services.worker.hooks.hook import NO_HOOKS, Hooks
from services.worker.leases import Leases
from services.worker.runtimes.outlet import Outlet

log = structlog.get_logger("turnlog.worker")

_RETRY_SECONDS = 0.2
_ASK_SECONDS = 5.0
_SHARE_SECONDS = 1.0
"""While all slots are taken a session goes from turn to turn in its own for so long; then others have theirs."""

_claim_reply = msgspec.json.Decoder(replies.ClaimReply)
_signal = msgspec.json.Decoder(dict[str, str])


class Signals(Protocol):
    """What a slot needs of `NatsSubscriber`."""

    async def subscribe_signals(
        self, turn_id: TurnId, on_signal: Callable[[bytes], None], on_gap: Callable[[], None]
    ) -> Subscription: ...


class Slots:
    """Executes turns; `running` are those under way, by turn id."""

    def __init__(
        self,
        worker_id: WorkerId,
        runtimes: Mapping[str, Runtime],
        tools: Tools,
        leases: Leases,
        signals: Signals,
        hooks: Mapping[str, Hooks] | None = None,
        *,
        count: int,
    ) -> None:
        """`runtimes` and `hooks`: by agent id; `count`: how many turns may be executed at a time."""
        self.count = count
        self.running: dict[str, Executor] = {}
        self.draining = False
        self.recoveries = 0
        """Turns that were taken over from a worker that died."""

        self.ended = dict.fromkeys(("completed", "failed", "interrupted", "paused", "released", "lost"), 0)
        """Executions that are over, by what became of their turn."""

        self._worker_id = worker_id
        self._runtimes = runtimes
        self._tools = tools
        self._leases = leases
        self._signals = signals
        self._hooks = hooks or {}
        self._claims = 0
        self._outdated = False

    async def work(self, found: Startable) -> bool:
        """Claim what may start in that session and execute it, and what follows. False where nothing could be
        claimed."""
        answered = None if found.orphan is None else await self._ask(found, found.orphan)
        claim = await self._claim(found.session_id, answered)
        if claim is None:
            return False
        since = self._tools.clock.monotonic()
        while claim is not None:
            claim = await self._execute(claim, since)
        return True

    def interrupt(self, turn_id: str) -> None:
        """A stored intent was seen."""
        executor = self.running.get(turn_id)
        if executor is not None:
            executor.interrupt()

    def lost(self, turn_id: str) -> None:
        """Another worker holds the turn now."""
        executor = self.running.get(turn_id)
        if executor is not None:
            executor.lost()

    def release_all(self) -> None:
        """Hand back what still runs."""
        for executor in list(self.running.values()):
            executor.release()

    def roll_up_again(self) -> None:
        """The broker's streams were made anew: those who join open items look there."""
        for executor in list(self.running.values()):
            executor.roll_up_again()

    async def _ask(self, found: Startable, turn_id: TurnId) -> commands.Answered | None:
        """What the runtime knows of a turn whose worker is gone; None for those that cannot be asked."""
        runtime = self._runtimes.get(found.agent_id)
        if runtime is None or not runtime.capabilities.can_be_asked:
            return None
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                return await cast(KnowingRuntime, runtime).query(found.session_id, turn_id)
        except Exception as error:  # noqa: BLE001 - the root of users' code: without an answer the log decides
            log.warning("turn.query_failed", session=found.session_id, turn=turn_id, error=type(error).__name__)
            return commands.Answered(turn_id=turn_id, state="unknown")

    async def _claim(self, session_id: SessionId, answered: commands.Answered | None) -> replies.ClaimedTurn | None:
        self._claims += 1
        command = commands.ClaimTurn(
            session_id=session_id,
            key=CommandKey(f"c:{self._worker_id}:{self._claims}"),
            by="worker",
            worker_id=self._worker_id,
            take_over=self._leases.steady(),
            answered=answered,
        )
        while True:
            try:
                outcome = await self._tools.pipeline.execute(command)
            except VersionMismatch as mismatch:
                # Another version of this program serves that session; those that this one can write go on.
                if not self._outdated:
                    self._outdated = True
                    log.error("worker.version_mismatch", reason=str(mismatch))
                return None
            except StoreUnavailable:
                # It may have been committed. A claim that nobody executes would block the session: the same key
                # settles it.
                await asyncio.sleep(_RETRY_SECONDS)
            except (Rejection, Unavailable, InternalFault):
                # What is wrong with this one session must not end a worker that serves others.
                return None
            else:
                return _claim_reply.decode(outcome.reply).claim

    async def _execute(self, claim: replies.ClaimedTurn, since: float) -> replies.ClaimedTurn | None:
        runtime = self._runtimes.get(claim.agent_id) or MissingRuntime(claim.agent_id)
        hooks = self._hooks.get(claim.agent_id, NO_HOOKS)
        executor = Executor(claim, runtime, self._tools, partial(self._next_for, since), hooks)
        self._leases.hold(claim)
        self.running[claim.turn_id] = executor
        self.recoveries += claim.reason == "worker_lost"
        log.info(
            "turn.executes",
            session=claim.session_id,
            turn=claim.turn_id,
            sequence=claim.started_sequence,
            attempt=claim.attempt,
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                # Beside the execution: a turn does not wait for the broker.
                listening = tasks.create_task(self._listen(claim.turn_id))
                if self.draining:
                    executor.release()
                following = await executor.run()
                listening.cancel()
        finally:
            del self.running[claim.turn_id]
            self.ended[executor.ended] += 1
            self._leases.release(claim.turn_id)
        return following

    async def _listen(self, turn_id: str) -> None:
        def on_signal(message: bytes) -> None:
            try:
                kind = _signal.decode(message).get("type")
            except msgspec.DecodeError:
                return
            if kind == "interrupt":
                self.interrupt(turn_id)

        # After a gap the next heartbeat tells of stored intents.
        subscription = await self._signals.subscribe_signals(TurnId(turn_id), on_signal, lambda: None)
        try:
            await asyncio.Event().wait()
        finally:
            subscription.close()

    def _next_for(self, since: float) -> WorkerId | None:
        """Who goes on with the session's next turn: nobody while others wait for the slot that it has had `since`."""
        if self.draining:
            return None
        taken = len(self.running) >= self.count
        return None if taken and self._tools.clock.monotonic() - since > _SHARE_SECONDS else self._worker_id


class MissingRuntime:
    """Stands in for an agent that this worker does not have: its turn fails and says so."""

    capabilities = Capabilities()

    def __init__(self, agent_id: str) -> None:
        self._agent_id = agent_id

    def execute(self, execution: Execution) -> AsyncGenerator[RuntimeFrame, None]:
        """Fails at once."""
        return Outlet().stream(self._fail)

    async def _fail(self, outlet: Outlet) -> None:
        raise RuntimeFailed("agent_error", f"No worker has the agent {self._agent_id} any more.")
