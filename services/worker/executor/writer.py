"""Writes an execution's drafts: one command in flight, what comes meanwhile goes into the next."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from domain import commands, replies
from domain.errors import Unavailable, VersionMismatch
from domain.events.envelope import Draft
from domain.ids import CommandKey, Fence, Ordinal, SessionId, TurnId
from domain.ports import CommandPipeline
from services.worker.executor.gate import CommitGate
from services.worker.executor.lease import Lease
from services.worker.executor.recorder import Recorder

log = structlog.get_logger("turnlog.worker")

_RETRY_SECONDS = 0.1

_LINGER_SECONDS = 0.003
"""What nobody waits for may wait this long for company: the end of a response is one append instead of four."""

_reply = msgspec.json.Decoder(replies.ExecutorReply)


class Writer:
    """Sole sender of a turn's executor commands. A command keeps its ordinal until it is answered, so that a lost reply
    is answered by the repeat. Raises what the pipeline refuses, StaleFence first of all."""

    def __init__(
        self,
        claim: replies.ClaimedTurn,
        *,
        pipeline: CommandPipeline,
        lease: Lease,
        gate: CommitGate,
        recorder: Recorder,
        pending_bytes: int,
        on_interrupt: Callable[[], None],
    ) -> None:
        self._claim = claim
        self._pipeline = pipeline
        self._lease = lease
        self._gate = gate
        self._recorder = recorder
        self._pending_bytes = pending_bytes
        self._on_interrupt = on_interrupt
        self._ordinal = 1
        self._work = asyncio.Event()
        self._urgent = asyncio.Event()
        self._drained = asyncio.Event()
        self._stopping = False

    def wake(self, *, urgent: bool = False) -> None:
        """There may be drafts; with `urgent` somebody waits for their commit."""
        if self._recorder.has_drafts:
            self._work.set()
            if urgent:
                self._urgent.set()

    async def room(self) -> None:
        """Returns when another frame may be recorded: a runtime that is faster than the store waits here."""
        while self._recorder.pending_bytes > self._pending_bytes:
            self._urgent.set()
            self._drained.clear()
            await self._drained.wait()

    async def run(self) -> None:
        """Writes until `stop`."""
        while not self._stopping:
            await self._work.wait()
            self._work.clear()
            while self._recorder.has_drafts and not self._stopping:
                await self._linger()
                if not self._stopping:
                    await self._send(commands.RecordEvents)

    def stop(self) -> None:
        """`run` ends after the command that is in flight; what is drafted by then goes with `last`."""
        self._stopping = True
        self._work.set()
        self._urgent.set()

    async def last(self, kind: type[commands.ExecutorCommand], **fields: Any) -> replies.ExecutorReply:
        """The command that ends the leg, with all drafts that are left. Only after `run` has ended."""
        reply = await self._send(kind, **fields)
        log.info(
            "turn.leaves",
            session=self._claim.session_id,
            turn=self._claim.turn_id,
            sequence=reply.sequence,
            status=reply.status,
        )
        return reply

    async def _linger(self) -> None:
        try:
            async with asyncio.timeout(_LINGER_SECONDS):
                await self._urgent.wait()
        except TimeoutError:
            pass

    async def _send(self, kind: type[commands.ExecutorCommand], **fields: Any) -> replies.ExecutorReply:
        drafts: list[Draft] = self._recorder.drain()
        self._urgent.clear()
        self._drained.set()
        claim = self._claim
        command = kind(
            session_id=SessionId(claim.session_id),
            key=CommandKey(f"x:{claim.turn_id}:{claim.fence}:{self._ordinal}"),
            by="worker",
            turn_id=TurnId(claim.turn_id),
            fence=Fence(claim.fence),
            ordinal=Ordinal(self._ordinal),
            events=drafts,
            **fields,
        )
        reply = await self._settled(command)
        self._ordinal += 1
        self._recorder.committed(drafts)
        self._gate.committed(drafts)
        if reply.interrupt_requested:
            self._on_interrupt()
        return reply

    async def _settled(self, command: commands.ExecutorCommand) -> replies.ExecutorReply:
        while True:
            try:
                outcome = await self._pipeline.execute(command, deadline=self._lease.deadline())
            except VersionMismatch:
                raise
            except Unavailable:
                # As long as the claim is not known to be lost the same key settles it, however long the store is away.
                await asyncio.sleep(_RETRY_SECONDS)
                await self._lease.ahead()
            else:
                return _reply.decode(outcome.reply)
