"""Commands and faults in any order, against the memory and the PostgreSQL store, compared with a model of plain lists.

The model (`Model`) knows the rules as people would tell them, and nothing of the code. After each step the session must
be what the model says, and invariants 2, 3, 8, 9 and 12 must hold in the log.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from domain import commands, replies
from domain.commands import Command
from domain.errors import Rejection
from domain.events.envelope import Draft
from domain.events.item import (
    CheckpointReached,
    ItemCompleted,
    ItemFrames,
    ToolCallData,
    ToolResultSnapshot,
    ToolStarted,
)
from domain.ids import CommandKey, Fence, Ordinal, Sequence, SessionId, TurnId, WorkerId
from domain.parts import Answer, Requirement
from infra.postgres.pool import create_pool
from tests.support.databases import Database
from tests.support.servers import LoopThread
from tests.support.stand import Stand, memory_stand, postgres_stand

T = TypeVar("T")
ENDED = ("completed", "failed", "interrupted", "cancelled")
DEATHS = 3


@dataclass
class Tool:
    """A call as the model sees it."""

    idempotent: bool
    started: bool = False
    done: bool = False


@dataclass
class Entry:
    """A turn as the model sees it."""

    turn_id: str
    status: str = "queued"
    attempt: int = 0
    deaths: int = 0
    released: bool = False
    continued: bool = False
    wish: str | None = None
    asked: dict[str, bool | None] = field(default_factory=dict)
    tools: dict[str, Tool] = field(default_factory=dict)
    replaces: str | None = None
    superseded: bool = False


@dataclass
class Model:
    """One session: a list of turns in the order of their acceptance, a queue that is open or paused, one owner."""

    turns: list[Entry] = field(default_factory=list)
    open: bool = True
    fence: int = 0
    owner: str | None = None

    def of(self, turn_id: str) -> Entry:
        return next(turn for turn in self.turns if turn.turn_id == turn_id)

    @property
    def active(self) -> Entry | None:
        return next((turn for turn in self.turns if turn.status in ("running", "paused")), None)

    @property
    def waiting(self) -> list[Entry]:
        return [turn for turn in self.turns if turn.status == "queued"]

    def end(self, turn: Entry, status: str) -> None:
        """A bad end pauses a queue in which something waits; an end that made way does not."""
        turn.status = status
        self.owner = None
        bad = status == "failed" or (status == "interrupted" and turn.wish == "pause")
        if bad and self.waiting:
            self.open = False

    def start(self, turn: Entry, worker: str) -> Entry:
        turn.status, turn.released, turn.continued = "running", False, False
        self.fence += 1
        self.owner = worker
        return turn

    def start_next(self, worker: str) -> Entry | None:
        if self.active is not None or not self.open or not self.waiting:
            return None
        turn = self.start(self.waiting[0], worker)
        turn.attempt = 1
        return turn

    def submit(self, turn_id: str, policy: str) -> bool:
        active = self.active
        if policy == "reject" and (active or self.waiting):
            return False
        self.turns.append(Entry(turn_id))
        if policy == "interrupt" and active is not None:
            if active.status == "paused":
                active.status = "interrupted"
            else:
                active.wish = active.wish or "go_on"
        return True

    def cancel(self, turn: Entry) -> bool:
        if turn.status not in ("queued", "paused"):
            return False
        turn.status = "cancelled"
        if not self.open and not self.waiting:
            self.open = True
        return True

    def interrupt(self, turn: Entry) -> bool:
        if turn.status != "running":
            return False
        turn.wish = "pause"
        return True

    def answer(self, turn: Entry, call: str, approved: bool) -> bool:
        if call not in turn.asked:
            return False
        known = turn.asked[call]
        if known is not None:
            return known == approved
        if turn.status != "paused":
            return False
        turn.asked[call] = approved
        turn.continued = None not in turn.asked.values()
        return True

    def holds(self, turn: Entry, fence: int) -> bool:
        return turn.status == "running" and not turn.released and fence == self.fence

    def claim(self, worker: str, alive: set[str], take_over: bool) -> tuple[bool, Entry | None]:
        """Whether it is accepted, and what starts."""
        active = self.active
        if active is None:
            started = self.start_next(worker)
            return started is not None, started
        if active.status == "paused":
            return (True, self.start(active, worker)) if active.continued else (False, None)
        handed_back = active.released
        if not handed_back and (self.owner in alive or not take_over):
            return False, None
        doubt = any(tool.started and not tool.done and not tool.idempotent for tool in active.tools.values())
        if active.wish is not None:
            self.end(active, "interrupted")
        elif doubt or (not handed_back and active.deaths + 1 >= DEATHS):
            self.end(active, "failed")
        else:
            active.deaths += not handed_back
            active.attempt += 1
            return True, self.start(active, worker)
        return True, self.start_next(worker)


class Life(RuleBasedStateMachine):
    """One session; two workers that die and come back; everything that people and workers may do. Each command may
    lose its reply, and is then sent again."""

    def __init__(self, stand: Stand, run: Any) -> None:
        super().__init__()
        self.stand = stand
        self.go = run
        self.model = Model()
        self.claims: list[replies.ClaimedTurn] = []
        self.ordinals: dict[tuple[str, int], int] = {}
        self.frames: dict[str, int] = {}
        self.workers: list[WorkerId] = []
        self.alive: set[str] = set()
        self.read = 0
        self.seen: dict[str, str] = {}
        self.starts: dict[str, int] = {}
        self.once: set[str] = set()
        self.final: set[str] = set()
        self.fences: list[int] = []

    @initialize()
    def begin(self) -> None:
        self.session: SessionId = self.go(self.stand.create())
        for _ in range(2):
            self.join()

    def join(self) -> None:
        worker = self.go(self.stand.worker())
        self.workers.append(worker)
        self.alive.add(worker)

    def send(self, command: Command, fault: str) -> bytes | None:
        """The reply; None where it was refused. `lost`: the first reply never arrives; `doubled`: both do."""
        try:
            first = self.go(self.stand.pipeline.execute(command))
            if fault == "none":
                return bytes(first.reply)
            again = self.go(self.stand.pipeline.execute(command))
        except Rejection:
            return None
        assert again.replayed
        assert again.reply == first.reply, "a repeat gets the first reply, byte for byte"
        return bytes(again.reply)

    def common(self) -> dict[str, Any]:
        return {"session_id": self.session, "key": self.stand.key()}

    FAULT = st.sampled_from(["none", "none", "lost", "doubled"])
    TURN = st.integers(0, 30)

    def turn(self, number: int) -> Entry:
        return self.model.turns[number % len(self.model.turns)]

    @rule(policy=st.sampled_from(["queue", "queue", "reject", "interrupt"]), fault=FAULT)
    def submit(self, policy: str, fault: str) -> None:
        command = self.stand.submission(self.session, if_busy=policy)
        expected = self.model.submit(command.turn_id, policy)
        assert (self.send(command, fault) is not None) == expected

    @precondition(lambda self: self.model.turns)
    @rule(number=TURN, fault=FAULT)
    def cancel(self, number: int, fault: str) -> None:
        turn = self.turn(number)
        command = commands.CancelTurn(**self.common(), turn_id=TurnId(turn.turn_id))
        assert (self.send(command, fault) is not None) == self.model.cancel(turn)

    @precondition(lambda self: self.model.turns)
    @rule(number=TURN, fault=FAULT)
    def interrupt(self, number: int, fault: str) -> None:
        turn = self.turn(number)
        command = commands.InterruptTurn(**self.common(), turn_id=TurnId(turn.turn_id))
        assert (self.send(command, fault) is not None) == self.model.interrupt(turn)

    @precondition(lambda self: any(turn.asked for turn in self.model.turns))
    @rule(
        number=TURN,
        call=st.sampled_from(["q0", "q1", "q2"]),
        approved=st.sampled_from([True, True, False]),
        fault=FAULT,
    )
    def answer(self, number: int, call: str, approved: bool, fault: str) -> None:
        asking = [turn for turn in self.model.turns if turn.asked]
        turn = asking[number % len(asking)]
        answers = {call: Answer(approved=approved, by="ann", at="2026-01-01T00:00:00.000000Z")}
        command = commands.ContinueTurn(**self.common(), turn_id=TurnId(turn.turn_id), answers=answers)
        assert (self.send(command, fault) is not None) == self.model.answer(turn, call, approved)

    @rule(fault=FAULT)
    def resume(self, fault: str) -> None:
        expected = not self.model.open
        assert (self.send(commands.ResumeQueue(**self.common()), fault) is not None) == expected
        self.model.open = True

    @precondition(lambda self: self.model.turns)
    @rule(number=TURN, replace=st.booleans(), fault=FAULT)
    def regenerate(self, number: int, replace: bool, fault: str) -> None:
        turn = self.turn(number)
        command = commands.RegenerateTurn(
            **self.common(),
            turn_id=TurnId(self.stand.ids.uuid7()),
            source_turn_id=TurnId(turn.turn_id),
            replace_original=replace,
        )
        accepted = self.send(command, fault) is not None
        assert accepted == (turn.status in ENDED)
        if accepted:
            self.model.turns.append(Entry(command.turn_id, replaces=turn.turn_id if replace else None))

    @rule(worker=st.integers(0, 1), take_over=st.booleans(), fault=FAULT)
    def claim(self, worker: int, take_over: bool, fault: str) -> None:
        worker_id = self.workers[-1 - worker]
        command = commands.ClaimTurn(**self.common(), worker_id=worker_id, take_over=take_over)
        accepted, started = self.model.claim(worker_id, self.alive, take_over)
        # A claim that only seals has nothing to repeat: sent again it claims what may start then.
        reply = self.send(command, fault if started is not None else "none")
        assert (reply is not None) == accepted
        claim = None if reply is None else msgspec.json.decode(reply, type=replies.ClaimReply).claim
        assert (None if claim is None else claim.turn_id) == (None if started is None else started.turn_id)
        self._claimed(claim, started)

    def _claimed(self, claim: replies.ClaimedTurn | None, started: Entry | None) -> None:
        if claim is not None and started is not None:
            assert (claim.attempt, claim.fence) == (started.attempt, self.model.fence)
            self.claims.append(claim)
            self.frames.setdefault(claim.turn_id, 0)

    def _executor(self, claim: replies.ClaimedTurn) -> dict[str, Any]:
        place = (claim.turn_id, claim.fence)
        self.ordinals[place] = self.ordinals.get(place, 0) + 1
        return {
            "session_id": self.session,
            "key": CommandKey(self.stand.ids.uuid7()),
            "turn_id": TurnId(claim.turn_id),
            "fence": Fence(claim.fence),
            "ordinal": Ordinal(self.ordinals[place]),
        }

    def _frame(self, claim: replies.ClaimedTurn, count: int = 1) -> int:
        self.frames[claim.turn_id] += count
        return claim.frame_base + self.frames[claim.turn_id]

    def _executed(self, claim: replies.ClaimedTurn, command: Command, fault: str) -> replies.ExecutorReply | None:
        """Invariant 9: accepted from the holder of the newest fence, refused from everybody else."""
        turn = self.model.of(claim.turn_id)
        expected = self.model.holds(turn, claim.fence)
        reply = self.send(command, fault)
        assert (reply is not None) == expected, "the fence decides"
        return None if reply is None else msgspec.json.decode(reply, type=replies.ExecutorReply)

    CLAIM = st.sampled_from([0, 0, 0, 0, 1, 2])

    def pick(self, back: int) -> replies.ClaimedTurn:
        """Mostly the newest claim; sometimes one that was lost."""
        return self.claims[max(0, len(self.claims) - 1 - back)]

    @precondition(lambda self: self.claims)
    @rule(
        back=CLAIM,
        what=st.sampled_from(["call", "start", "result", "snapshot", "checkpoint", "text"]),
        fault=FAULT,
        idempotent=st.booleans(),
    )
    def record(self, back: int, what: str, fault: str, idempotent: bool) -> None:
        claim = self.pick(back)
        turn = self.model.of(claim.turn_id)
        item, after = self._event(claim, turn, what, idempotent)
        if item is None:
            return
        draft = Draft(item, TurnId(claim.turn_id), b"private" if what == "checkpoint" else None)
        command = commands.RecordEvents(**self._executor(claim), events=[draft])
        if self._executed(claim, command, fault) is not None:
            after()

    def _event(self, claim: replies.ClaimedTurn, turn: Entry, what: str, idempotent: bool) -> tuple[Any, Any]:
        stamp: dict[str, Any] = {"attempt": claim.attempt}
        open_calls = [item for item, tool in turn.tools.items() if not tool.done]
        runnable = [i for i in open_calls if not turn.tools[i].started or turn.tools[i].idempotent]
        if what == "text":
            return self.stand.text(claim, "word", self._frame(claim, 9) - claim.frame_base).data, lambda: None
        if what == "checkpoint":
            made = CheckpointReached(**stamp, frame=self._frame(claim), message_index=1, reason="tool_batch")
            return made, lambda: setattr(turn, "deaths", 0)
        if what == "call":
            item = self.stand.ids.uuid7()
            first = self._frame(claim, 2) - 1
            call = ToolCallData(tool_call_id="call_0", name="do", idempotent=idempotent)
            frames = ItemFrames(runs=[(first, 2)], cuts=[])
            made_call = ItemCompleted(
                **stamp, frame=first + 1, item_id=item, kind="tool_call", tool_call=call, frames=frames
            )
            return made_call, lambda: turn.tools.__setitem__(item, Tool(idempotent))
        if what == "start" and runnable:
            item = runnable[0]
            started = ToolStarted(**stamp, frame=self._frame(claim), tool_call_id="call_0", item_id=item)
            return started, lambda: setattr(turn.tools[item], "started", True)
        if what in ("result", "snapshot") and open_calls:
            item, final = open_calls[0], what == "result"
            sizes: dict[str, Any] = {"original_bytes": 1, "stored_bytes": 1}
            frame = self._frame(claim)
            result = ToolResultSnapshot(
                **stamp,
                frame=frame,
                tool_call_id="call_0",
                item_id=item,
                revision=frame,
                final=final,
                output="x",
                **sizes,
            )
            return result, lambda: setattr(turn.tools[item], "done", final)
        return None, None

    @precondition(lambda self: self.claims)
    @rule(back=CLAIM, count=st.integers(1, 2), fault=FAULT)
    def pause(self, back: int, count: int, fault: str) -> None:
        claim = self.pick(back)
        asked = [Requirement(tool_call_id=f"q{n}", kind="approval", tool_name="do") for n in range(count)]
        command = commands.PauseTurn(
            **self._executor(claim), attempt=claim.attempt, frame=self._frame(claim), requirements=asked
        )
        if self._executed(claim, command, fault) is None:
            return
        turn = self.model.of(claim.turn_id)
        if turn.wish is not None:
            self.model.end(turn, "interrupted")
        else:
            turn.status, turn.asked, self.model.owner = "paused", {need.tool_call_id: None for need in asked}, None

    @precondition(lambda self: self.claims)
    @rule(back=CLAIM, fault=FAULT)
    def release(self, back: int, fault: str) -> None:
        claim = self.pick(back)
        if self._executed(claim, commands.ReleaseTurn(**self._executor(claim)), fault) is not None:
            self.model.of(claim.turn_id).released, self.model.owner = True, None

    @precondition(lambda self: self.claims)
    @rule(
        back=CLAIM,
        outcome=st.sampled_from(["completed", "completed", "failed", "interrupted"]),
        go_on=st.booleans(),
        fault=FAULT,
    )
    def finish(self, back: int, outcome: str, go_on: bool, fault: str) -> None:
        claim = self.pick(back)
        turn = self.model.of(claim.turn_id)
        worker = self.workers[-1]
        command = commands.FinishTurn(
            **self._executor(claim),
            outcome=outcome,  # type: ignore[arg-type]
            attempt=claim.attempt,
            frame=self._frame(claim),
            claim_next=worker if go_on else None,
        )
        reply = self._executed(claim, command, fault)
        if reply is None:
            return
        self.model.end(turn, "interrupted" if turn.wish is not None else outcome)
        if turn.status == "completed" and turn.replaces is not None:
            self.model.of(turn.replaces).superseded = True
        started = self.model.start_next(worker) if go_on else None
        assert (None if reply.next is None else reply.next.turn_id) == (None if started is None else started.turn_id)
        self._claimed(reply.next, started)

    @rule(worker=st.integers(0, 1))
    def worker_dies(self, worker: int) -> None:
        """Its lease is over; it may still write, as long as nobody has taken its turn."""
        victim = self.workers.pop(-1 - worker)
        self.go(self.stand.leases.end(victim))
        self.alive.discard(victim)
        self.join()

    @precondition(lambda self: self.model.owner in self.alive)
    @rule(fault=FAULT)
    def the_owner_dies_and_another_takes_over(self, fault: str) -> None:
        """As `worker_dies` and `claim`, which seldom come one after the other."""
        number = self.workers.index(WorkerId(self.model.owner or ""))
        self.worker_dies(len(self.workers) - 1 - number)
        self.claim(0, True, fault)

    @invariant()
    def the_session_is_what_the_model_says(self) -> None:
        if not hasattr(self, "session"):
            return
        self._read_on()
        head = self.go(self.stand.store.heads([self.session]))[self.session]
        active = self.model.active
        assert head.last_sequence == self.read
        assert head.active_turn_id == (None if active is None else active.turn_id)
        assert (head.queue_state == "open", head.queued_count) == (self.model.open, len(self.model.waiting))
        assert self.seen == {turn.turn_id: turn.status for turn in self.model.turns}, "3: all that was accepted"

    def _read_on(self) -> None:
        """The log since the last look, judged by what it says only."""
        page = self.go(self.stand.store.page(self.session, Sequence(self.read), 10_000_000, 1000))
        for event in page.events:
            self.read += 1
            assert event.sequence == self.read
            self._judge(event.type, event.turn_id, msgspec.json.decode(event.payload), event.private)

    def _judge(self, type_: str, turn: str | None, data: dict[str, Any], private: bytes | None) -> None:
        if turn is None:
            return
        before = self.seen.get(turn)
        if type_ == "turn.superseded":
            assert self.model.of(turn).superseded
            return
        assert before not in ENDED, "8: a terminal status never changes"
        if type_ == "turn.started":
            others = [other for other, status in self.seen.items() if status in ("running", "paused") and other != turn]
            assert not others, "2: one active turn"
            fence = msgspec.json.decode(private or b"{}")["fence"]
            assert not self.fences or fence > self.fences[-1], "9: fences ascend"
            self.fences.append(fence)
        if type_ == "item.completed" and data["kind"] == "tool_call" and not data["tool_call"].get("idempotent"):
            self.once.add(data["item_id"])
        if type_ == "tool.started":
            item = data["item_id"]
            self.starts[item] = self.starts.get(item, 0) + 1
            assert item not in self.final, "12: what has its result is not started again"
            assert item not in self.once or self.starts[item] == 1, "12: and what may run once is started once"
        if type_ == "tool_result.snapshot":
            assert data["item_id"] not in self.final, "12: a result is never produced a second time"
            if data["final"]:
                self.final.add(data["item_id"])
        statuses = {"turn.queued": "queued", "turn.started": "running", "turn.paused": "paused"}
        ends = {f"turn.{status}": status for status in ENDED}
        self.seen[turn] = (statuses | ends).get(type_, before or "queued")


def machine(stand: Stand, run: Any, examples: int, steps: int) -> None:
    run_state_machine_as_test(
        lambda: Life(stand, run),  # type: ignore[arg-type]
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_any_life_in_memory() -> None:
    loop = asyncio.new_event_loop()
    try:
        machine(memory_stand(), loop.run_until_complete, 120, 50)
    finally:
        loop.close()


@pytest.fixture
def postgres(database: Database) -> Iterator[tuple[Stand, Any]]:
    thread = LoopThread()

    def run(work: Coroutine[Any, Any, T]) -> T:
        return thread.run(work)

    dsn = run(database.dsn_of("turnlog_worker"))
    pool = run(create_pool(dsn, size=3))
    context = postgres_stand(dsn, pool)
    try:
        yield run(context.__aenter__()), run
        run(context.__aexit__(None, None, None))
        run(pool.close())
    finally:
        thread.close()


def test_any_life_on_postgresql(postgres: tuple[Stand, Any]) -> None:
    machine(*postgres, 15, 30)


@pytest.mark.soak
def test_any_life_on_postgresql_for_long(postgres: tuple[Stand, Any]) -> None:
    machine(*postgres, 500, 80)
