"""The gate inside every tool call: the commit opens it, the lease's deadline and a lost claim hold it shut."""

import asyncio

from domain.events.envelope import Draft
from domain.events.item import ToolStarted
from domain.ids import TurnId
from services.worker.executor.gate import CommitGate


class HeldLease:
    """A lease whose deadline lies behind until the test says otherwise."""

    def __init__(self) -> None:
        self.renewed = asyncio.Event()

    def deadline(self) -> float:
        return 0.0

    async def ahead(self) -> None:
        await self.renewed.wait()

    def touched(self, turn_id: str) -> None: ...


def started(item_id: str) -> Draft:
    return Draft(ToolStarted(attempt=1, frame=1, tool_call_id="call_0", item_id=item_id), TurnId("t"))


async def settled(task: "asyncio.Task[None]") -> bool:
    """Whether it has ended, once everything that is ready has run."""
    for _ in range(20):
        await asyncio.sleep(0)
    return task.done()


async def test_it_opens_for_its_own_item_once_that_is_committed_and_the_lease_lies_ahead() -> None:
    lease = HeldLease()
    gate = CommitGate(lease)
    one, other = asyncio.create_task(gate.open("one")), asyncio.create_task(gate.open("other"))
    lease.renewed.set()
    assert not await settled(one)
    gate.committed([started("one")])
    assert await settled(one)
    assert not await settled(other), "the same call id, another item"
    other.cancel()


async def test_a_commit_does_not_open_it_while_the_lease_is_over() -> None:
    lease = HeldLease()
    gate = CommitGate(lease)
    gate.committed([started("one")])
    task = asyncio.create_task(gate.open("one"))
    assert not await settled(task)
    lease.renewed.set()
    assert await settled(task)


async def test_it_stays_shut_when_the_heartbeat_that_renews_the_lease_says_the_claim_is_lost() -> None:
    """A process that was frozen: its start is committed, its turn is somebody else's by now."""
    lease = HeldLease()
    gate = CommitGate(lease)
    gate.committed([started("one")])
    task = asyncio.create_task(gate.open("one"))
    assert not await settled(task)
    gate.close()
    lease.renewed.set()
    assert not await settled(task)
    task.cancel()
