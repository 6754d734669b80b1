"""The end of one turn may claim the next one: whatever a heartbeat says meanwhile, that claim is executed."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from domain import commands
from domain.commands import Command
from domain.ports import Outcome
from infra.system import SystemClock, SystemIds
from services.worker.executor.bounds import Bounds
from services.worker.executor.executor import Executor, Tools
from services.worker.runtimes.callable import CallableRuntime
from tests.support.collector import WORKER, Collector, Shown, SteadyLease
from turnlog import Turn


class SlowAnswer(Collector):
    """Between the commit of the finishing command and its answer a heartbeat finds the finished turn's claim gone."""

    executor: Executor

    async def execute(self, command: Command, *, deadline: float | None = None) -> Outcome:
        outcome = await super().execute(command, deadline=deadline)
        if isinstance(command, commands.FinishTurn):
            self.executor.lost()
            for _ in range(10):
                await asyncio.sleep(0)
        return outcome


async def echo(turn: Turn) -> AsyncGenerator[str, Any]:
    """Says one word."""
    yield "done"


async def test_a_heartbeat_beside_the_finish_does_not_lose_the_next_claim() -> None:
    store = SlowAnswer()
    await store.create()
    await store.submit("one")
    await store.submit("two")
    tools = Tools(
        pipeline=store,
        turn_log=store,
        notifier=Shown(),
        lease=SteadyLease(),
        clock=SystemClock(),
        ids=SystemIds(),
        bounds=Bounds(),
    )
    claim = await store.claim()
    assert claim is not None
    store.executor = Executor(claim, CallableRuntime(echo), tools, lambda: WORKER)
    following = await store.executor.run()
    assert following is not None
    assert following.turn_id == store.state.head.active_turn_id  # type: ignore[union-attr]
