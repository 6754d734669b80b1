"""One claimed turn from its start to the command that ends the leg."""

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec
import structlog

from domain import commands, replies
from domain.clock import IdSource, Monotonic
from domain.errors import InternalFault, Rejection, StaleFence, TooLarge, VersionMismatch
from domain.history import TurnLog
from domain.ids import SessionId, WorkerId
from domain.parts import Failure, Part
from domain.ports import CommandPipeline, Notifier
from domain.runtime import Attachments, NoAttachments, Runtime
from services.worker.executor.bounds import Bounds
from services.worker.executor.failures import failure_of, place_of
from services.worker.executor.gate import CommitGate
from services.worker.executor.intake import Intake
from services.worker.executor.interrupt import StopWish
from services.worker.executor.lease import Lease
from services.worker.executor.leg import Leg, Told, read_start
from services.worker.executor.outcome import Outcome, completed
from services.worker.executor.recorder import Recorder
from services.worker.executor.writer import Writer
from services.worker.hooks.declared import HookRun
from services.worker.hooks.hook import NO_HOOKS, Hooks
from services.worker.hooks.in_line import InLine

log = structlog.get_logger("turnlog.worker")


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """What every execution of a worker shares."""

    pipeline: CommandPipeline
    turn_log: TurnLog
    notifier: Notifier
    lease: Lease
    clock: Monotonic
    ids: IdSource
    bounds: Bounds
    tell_hook: Callable[[commands.HookJob, str], None] = lambda job, agent_id: None
    """That a job of that agent was scheduled: a hint, for whoever runs it."""

    attachments: Attachments = NoAttachments()


class Executor:
    """Executes one turn; `interrupt`, `release` and `lost` come from outside, in the event loop."""

    def __init__(
        self,
        claim: replies.ClaimedTurn,
        runtime: Runtime,
        tools: Tools,
        next_for: Callable[[], WorkerId | None],
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        """`next_for`: who may claim the session's next turn with the end of this one; None while draining."""
        self.claim = claim
        self._runtime = runtime
        self._tools = tools
        self._next_for = next_for
        self._wish = StopWish()
        self._lost = asyncio.Event()
        self._releasing = False
        self._limit: asyncio.Timeout | None = None
        self.ended: str = "lost"
        """What became of the turn with the end of this leg: its status, `released`, or `lost` to another worker."""

        self._gate = CommitGate(tools.lease)
        session_id = SessionId(claim.session_id)
        self._hooks = InLine(
            hooks,
            HookRun(
                session_id=claim.session_id,
                turn_id=claim.turn_id,
                agent_id=claim.agent_id,
                hook="",
                input="",
                parts=[],
                context_version=claim.context_version,
                attachments=tools.attachments,
            ),
            tools.ids.uuid7,
        )
        self._recorder = Recorder(
            session_id=claim.session_id,
            turn_id=claim.turn_id,
            attempt=claim.attempt,
            frame_base=claim.frame_base,
            publish=partial(tools.notifier.publish_live, session_id),
            roll_up=partial(tools.notifier.publish_snapshot, session_id),
            clear=partial(tools.notifier.clear_live, session_id),
            new_id=tools.ids.uuid7,
            bounds=self._bounds(),
        )
        self._writer = Writer(
            claim,
            pipeline=tools.pipeline,
            lease=tools.lease,
            gate=self._gate,
            recorder=self._recorder,
            pending_bytes=tools.bounds.pending_bytes,
            on_interrupt=self.interrupt,
        )
        self._intake = Intake(
            self._recorder,
            self._writer,
            clock=tools.clock,
            new_id=tools.ids.uuid7,
            touched=partial(tools.lease.touched, claim.turn_id),
        )

    def interrupt(self) -> None:
        """Stop at the next await of the runtime. One that does not end in time is cancelled."""
        if self._wish.requested:
            return
        self._wish.request()
        self._end_by(self._tools.bounds.interrupt_seconds)

    def release(self) -> None:
        """Stop now and hand the turn back at its last checkpoint."""
        self._releasing = True
        self._end_by(0.0)

    def lost(self) -> None:
        """Somebody else holds the turn: write nothing more, start no tool."""
        self._gate.close()
        self._lost.set()

    def roll_up_again(self) -> None:
        """The broker's streams were made anew."""
        self._recorder.roll_up_again()

    async def run(self) -> replies.ClaimedTurn | None:
        """Execute; returns the turn that was claimed with the end of this one. Nothing is raised for what users' code
        does, nor for a lost claim; raises VersionMismatch where this process must not write at all."""
        if self.claim.interrupt_requested:
            self.interrupt()
        reply: replies.ExecutorReply | None = None
        try:
            async with asyncio.TaskGroup() as group:
                writing = group.create_task(self._writer.run())
                watching = group.create_task(self._watch())
                outcome = await self._produce()
                if outcome.kind == "completed":
                    self._recorder.seal()
                self._recorder.end(self._now(), partial=outcome.cut_off)
                self._writer.stop()
                await writing
                # The last command itself ends the claim (and may open the next one for us), so a heartbeat beside it
                # finds the claim gone. From here on only the command's own answer tells, StaleFence included.
                watching.cancel()
                reply = await self._finish(outcome)
        except* StaleFence:
            log.warning("turn.claim_lost", session=self.claim.session_id, turn=self.claim.turn_id)
        except* TooLarge as group_of:
            error = group_of.exceptions[0]
            log.warning("turn.too_large", session=self.claim.session_id, turn=self.claim.turn_id)
            reply = await self._give_up(Failure(code="too_large", message=str(error)))
        except* VersionMismatch:
            raise
        except* Rejection as group_of:
            codes = sorted({getattr(error, "code", "?") for error in group_of.exceptions})
            log.error("turn.refused", session=self.claim.session_id, turn=self.claim.turn_id, codes=codes)
            reply = await self._give_up(Failure(code="agent_error", message="The store refused what the turn did."))
        except* Exception as group_of:
            # Not users' code, that has a root of its own: a fault of ours. A live claim that nobody serves would block
            # the session.
            kinds = sorted({type(error).__name__ for error in group_of.exceptions})
            log.exception("turn.fault", session=self.claim.session_id, turn=self.claim.turn_id, kinds=kinds)
            reply = await self._give_up(Failure(code="agent_error", message="An internal error ended the turn."))
        finally:
            self._intake.stop()
        if reply is None:
            return None
        self.ended = "released" if reply.status == "running" else reply.status
        for job in self._hooks.jobs():
            if self.ended in job.after and not job.done:
                self._tools.tell_hook(job, self.claim.agent_id)
        return reply.next

    async def _watch(self) -> None:
        await self._lost.wait()
        raise StaleFence()

    async def _produce(self) -> Outcome:
        tools = self._tools
        past, told = await read_start(tools.turn_log, self.claim, tools.lease)
        for usage in told.usage:
            self._recorder.count(usage)
        self._recorder.resume(told.recorded.values())
        if self._wish.requested:
            return Outcome(kind="interrupted")
        leg = Leg(
            self.claim,
            past,
            told,
            gate=self._gate,
            interrupt=self._wish,
            new_id=tools.ids.uuid7,
            tool_result_bytes=self._bounds().result_bytes,
            attachments=tools.attachments,
        )
        failed: BaseException | None = None
        try:
            async with asyncio.timeout(None) as limit:
                self._limit = limit
                if self._releasing:
                    self._end_by(0.0)
                if not told.begun:
                    leg.input = await self._hooks.before(leg.input, told.rewritten_by, self._rewrite)
                await self._intake.all_of(self._runtime, leg)
                await self._run_post_hooks(leg, told)
        except Exception as error:  # noqa: BLE001 - the root of users' code: whatever it raises ends this turn only
            failed = error
        finally:
            self._limit = None
        return self._outcome(failed)

    def _rewrite(self, by: str, parts: list[Part]) -> None:
        self._recorder.rewrite(by, parts)
        self._writer.wake()

    async def _run_post_hooks(self, leg: Leg, told: Told) -> None:
        """Where the runtime has come to its end. Until they have passed it has not said so: a refusal, an interrupt or
        a hand-back counts."""
        said = self._intake.said or completed(None)
        if said.kind != "completed" or self._releasing or self._wish.requested:
            return
        self._intake.said = None
        # Those who watch need not wait for the hooks to see the whole text.
        self._recorder.seal()
        self._recorder.end(self._now(), partial=False)
        self._writer.wake()
        await self._hooks.after(leg.input, said.output or "".join([*told.said.values(), *self._recorder.said]) or None)
        self._intake.said = said

    def _outcome(self, failed: BaseException | None) -> Outcome:
        """What the runtime said last counts; else what was asked of it; else how it ended."""
        if self._intake.said is not None:
            return self._intake.said
        if self._releasing:
            return Outcome(kind="released")
        if self._wish.requested:
            return Outcome(kind="interrupted")
        if failed is None:
            return completed(None)
        error = failure_of(failed)
        log.info(
            "turn.failed",
            session=self.claim.session_id,
            turn=self.claim.turn_id,
            code=error.code,
            error=type(failed).__name__,
            error_at=place_of(failed),
        )
        return Outcome(kind="failed", error=error)

    async def _finish(self, outcome: Outcome) -> replies.ExecutorReply:
        attempt, frame = self.claim.attempt, self._recorder.next_frame()
        match outcome.kind:
            case "released":
                return await self._writer.last(commands.ReleaseTurn)
            case "paused":
                return await self._writer.last(
                    commands.PauseTurn,
                    attempt=attempt,
                    frame=frame,
                    requirements=outcome.requirements,
                    expires_in=self._tools.bounds.requirement_seconds,
                    hooks=self._hooks.jobs(),
                )
            case kind:
                return await self._writer.last(
                    commands.FinishTurn,
                    outcome=kind,
                    attempt=attempt,
                    frame=frame,
                    output=outcome.output,
                    error=outcome.error,
                    usage=self._recorder.usage,
                    claim_next=self._next_for(),
                    hooks=self._hooks.jobs(),
                )

    async def _give_up(self, error: Failure) -> replies.ExecutorReply | None:
        """The store refused what was drafted: end the turn without it."""
        self._recorder.drain()
        try:
            return await self._finish(Outcome(kind="failed", error=error))
        except (Rejection, InternalFault) as refused:
            # The claim ends by itself, since no heartbeat names it any more.
            log.error("turn.refused", session=self.claim.session_id, turn=self.claim.turn_id, codes=[refused.code])
            return None

    def _end_by(self, seconds: float) -> None:
        """The earliest end that was asked for counts. One that has come already, with users' code still cleaning up,
        cannot be moved: a Timeout raises then, and that would end the worker with all its turns."""
        limit = self._limit
        if limit is None or limit.expired():
            return
        end = asyncio.get_running_loop().time() + seconds
        known = limit.when()
        limit.reschedule(end if known is None else min(end, known))

    def _now(self) -> float:
        return self._tools.clock.monotonic()

    def _bounds(self) -> Bounds:
        own = self._runtime.capabilities.max_tool_result_bytes
        limit = self._tools.bounds.result_bytes
        return msgspec.structs.replace(self._tools.bounds, result_bytes=limit if own is None else min(own, limit))
