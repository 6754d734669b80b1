"""The lease's thread: it renews while the loop is blocked, tells what was lost, and is honest about its deadline."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from domain import replies
from domain.errors import StoreUnavailable
from domain.ids import TurnId, WorkerId
from infra.postgres.workers import Heartbeat, Held, Startable
from infra.system import SystemClock
from services.worker.claims import Claims
from services.worker.leases import Leases
from services.worker.slots import Slots
from tests.support.waiting import eventually


class Registry:
    """Leases in memory; called in the lease's thread."""

    def __init__(self) -> None:
        self.beats: list[tuple[float, list[Held]]] = []
        self.threads: set[str] = set()
        self.down = False
        self.fault: Exception | None = None
        self.lost: set[TurnId] = set()
        self.interrupted: set[TurnId] = set()
        self.left = False

    async def heartbeat(self, worker_id: WorkerId, held: list[Held]) -> Heartbeat:
        if self.down:
            raise StoreUnavailable()
        if self.fault is not None:
            raise self.fault
        self.threads.add(threading.current_thread().name)
        self.beats.append((time.monotonic(), held))
        return Heartbeat(expires_in=0.4, lost=self.lost, interrupted=self.interrupted)

    async def unregister(self, worker_id: WorkerId) -> None:
        self.left = True

    async def collect(self, dead_for: float) -> None: ...


class Stand:
    def __init__(self, lease: float = 0.4) -> None:
        self.registry = Registry()
        self.lost: list[str] = []
        self.interrupted: list[str] = []

        @asynccontextmanager
        async def open_workers() -> AsyncIterator[Registry]:
            yield self.registry

        self.leases = Leases(
            open_workers,
            WorkerId("w"),
            lease_seconds=lease,
            heartbeat_seconds=0.05,
            clock=SystemClock(),
            on_lost=self.lost.append,
            on_interrupted=self.interrupted.append,
        )


class NoWork:
    """A queue in which nothing ever waits."""

    async def claimable(
        self, limit: int, *, agent_ids: Sequence[str] | None = None, take_over: bool = True
    ) -> list[Startable]:
        return []


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    made = Stand()
    made.leases.start()
    yield made
    await made.leases.stop()
    assert made.registry.left


def claim(turn: str, fence: int = 1) -> replies.ClaimedTurn:
    import msgspec

    return replies.ClaimedTurn(
        session_id="s",
        agent_id="a",
        turn_id=turn,
        fence=fence,
        attempt=1,
        reason="first",
        frame_base=2**32,
        started_sequence=1,
        input=msgspec.Raw(b"[]"),
    )


async def test_a_blocked_loop_does_not_stop_the_heartbeat(stand: Stand) -> None:
    await stand.leases.ahead()
    before = len(stand.registry.beats)
    time.sleep(0.8)
    assert len(stand.registry.beats) - before >= 4
    assert stand.leases.deadline() > time.monotonic()
    assert stand.registry.threads == {"lease"}


async def test_lost_and_interrupted_turns_are_told_in_the_loop(stand: Stand) -> None:
    stand.leases.hold(claim("t1"))
    stand.leases.hold(claim("t2"))
    stand.registry.lost = {TurnId("t1")}
    stand.registry.interrupted = {TurnId("t2")}

    async def told() -> bool:
        return bool(stand.lost and stand.interrupted)

    await eventually(told, "both are told")
    assert set(stand.lost) == {"t1"}
    assert set(stand.interrupted) == {"t2"}


async def test_a_released_turn_is_not_asked_about_any_more(stand: Stand) -> None:
    stand.leases.hold(claim("t1"))

    async def asked() -> bool:
        return any(held for _, held in stand.registry.beats)

    await eventually(asked, "it is asked about")
    stand.leases.release("t1")
    count = len(stand.registry.beats)

    async def not_asked() -> bool:
        return any(not held for _, held in stand.registry.beats[count + 1 :])

    await eventually(not_asked, "it is not asked about")


async def test_the_deadline_passes_while_the_database_is_away(stand: Stand) -> None:
    await stand.leases.ahead()
    stand.registry.down = True

    async def passed() -> bool:
        return time.monotonic() >= stand.leases.deadline()

    await eventually(passed, "the deadline passes")
    assert not stand.leases.steady()
    waiting = asyncio.create_task(stand.leases.ahead())
    await asyncio.sleep(0)
    assert not waiting.done()
    stand.registry.down = False
    await asyncio.wait_for(waiting, 5)
    assert stand.leases.deadline() > time.monotonic()
    assert not stand.leases.steady(), "others need a chance to renew theirs first"

    async def steady() -> bool:
        return stand.leases.steady()

    await eventually(steady, "the database has been there for a lease")


async def test_a_thread_that_dies_ends_its_owner(stand: Stand) -> None:
    """Nobody would renew the lease any more, and nobody would know."""
    watching = asyncio.create_task(stand.leases.watch())
    await stand.leases.ahead()
    assert not watching.done()
    stand.registry.fault = LookupError("something that nobody thought of")
    with pytest.raises(LookupError):
        await asyncio.wait_for(watching, 5)
    stand.registry.left = True


async def test_a_worker_whose_database_never_came_can_be_told_to_end(stand: Stand) -> None:
    stand.registry.down = True
    slots = Slots(WorkerId("w"), {}, None, stand.leases, None, count=1)  # type: ignore[arg-type]  # nothing is ever executed
    claims = Claims(NoWork(), slots, stand.leases, ["a"], poll_seconds=0.05)
    stopping = asyncio.Event()
    running = asyncio.create_task(claims.run(stopping, 0.0))
    await asyncio.sleep(0)
    assert not running.done()
    stopping.set()
    await asyncio.wait_for(running, 5)
    stand.registry.down = False


async def test_silence_is_counted_from_the_last_frame(stand: Stand) -> None:
    stand.leases.hold(claim("t1"))

    async def silent() -> bool:
        return any(held[0].silent_seconds > 0.2 for _, held in stand.registry.beats if held)

    await eventually(silent, "it has been silent for a while")
    stand.leases.touched("t1")
    count = len(stand.registry.beats)

    async def spoke() -> bool:
        return any(held[0].silent_seconds < 0.2 for _, held in stand.registry.beats[count:] if held)

    await eventually(spoke, "it has spoken")
