"""No-op turns through the command interface, as one process has it.

`python -m benchmarks.contenders.turnlog_turns DSN SESSIONS TURNS`: every turn is submitted with its own command,
started by a claim (the first of a session) or by the finish before it, and finished with its own command. Prints the
seconds.
"""

import asyncio
import gc
import sys
import time
from collections.abc import Sequence as Many

import msgspec
import uvloop

from domain.commands import ClaimTurn, CreateSession, FinishTurn, SubmitTurn
from domain.ids import CommandKey, Fence, Ordinal, SessionId, TurnId, WorkerId
from domain.parts import TextPart
from domain.ports import Publication
from domain.replies import ClaimReply, ExecutorReply
from infra.pipeline.pipeline import Pipeline
from infra.pipeline.pools import open_pipeline_pools
from infra.pipeline.settings import PipelineSettings
from infra.system import SystemClock, SystemIds
from projections.serving import session_projections

_claimed = msgspec.json.Decoder(ClaimReply).decode
_finished = msgspec.json.Decoder(ExecutorReply).decode


class Counting:
    """A notifier that only counts: the broker is not what is measured."""

    def __init__(self) -> None:
        self.events = 0

    def publish_events(self, publications: Many[Publication]) -> None:
        self.events += len(publications)

    def publish_live(self, session_id: SessionId, item_id: str, frame: bytes) -> None: ...

    def publish_snapshot(self, session_id: SessionId, item_id: str, frame: bytes) -> None: ...

    def clear_live(self, session_id: SessionId, item_id: str) -> None: ...

    def wake(self, pool: str) -> None: ...

    def signal(self, turn_id: TurnId, message: bytes) -> None: ...

    def control(self, session_id: SessionId, message: bytes) -> None: ...


class Session:
    """A client and an executor of one session."""

    def __init__(self, pipeline: Pipeline, ids: SystemIds, worker_id: WorkerId) -> None:
        self._pipeline = pipeline
        self._ids = ids
        self._worker_id = worker_id
        self._session_id = SessionId(ids.uuid7())

    async def create(self) -> None:
        key = CommandKey(self._session_id)
        await self._pipeline.execute(
            CreateSession(session_id=self._session_id, key=key, agent_id="noop"), deadline=_LATE
        )

    async def run(self, turns: int) -> None:
        """Submit all, then execute them one after the other."""
        await asyncio.gather(*[self._submit(number) for number in range(turns)])
        command = ClaimTurn(session_id=self._session_id, key=CommandKey(self._ids.uuid7()), worker_id=self._worker_id)
        claim = _claimed((await self._pipeline.execute(command, deadline=_LATE)).reply).claim
        done = 0
        while claim is not None:
            finish = FinishTurn(
                session_id=self._session_id,
                key=CommandKey(""),
                turn_id=TurnId(claim.turn_id),
                fence=Fence(claim.fence),
                ordinal=Ordinal(1),
                outcome="completed",
                attempt=claim.attempt,
                frame=claim.frame_base + 1,
                claim_next=self._worker_id,
            )
            claim = _finished((await self._pipeline.execute(finish, deadline=_LATE)).reply).next
            done += 1
        assert done == turns

    async def _submit(self, number: int) -> None:
        command = SubmitTurn(
            session_id=self._session_id,
            key=CommandKey(f"turn-{number}"),
            turn_id=TurnId(self._ids.uuid7()),
            input=[TextPart("hello")],
        )
        await self._pipeline.execute(command, deadline=_LATE)


# A benchmark that is loaded beyond any deadline still measures throughput.
_LATE = float("inf")


async def measure(dsn: str, sessions: int, turns: int) -> float:
    """Seconds from the first submit to the last finish's commit."""
    settings = PipelineSettings()
    pools = await open_pipeline_pools(dsn, settings)
    ids, notifier = SystemIds(), Counting()
    async with Pipeline(
        pools.groups,
        pools.waiting,
        projections=session_projections(),
        notifier=notifier,
        clock=SystemClock(),
        ids=ids,
        settings=settings,
    ) as pipeline:
        worker_id = WorkerId(ids.uuid7())
        everybody = [Session(pipeline, ids, worker_id) for _ in range(sessions)]
        await asyncio.gather(*[session.create() for session in everybody])
        gc.collect()
        begun = time.perf_counter()
        await asyncio.gather(*[session.run(turns) for session in everybody])
        taken = time.perf_counter() - begun
    assert notifier.events == sessions + 3 * sessions * turns
    await pools.close()
    return taken


if __name__ == "__main__":
    print(uvloop.run(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
