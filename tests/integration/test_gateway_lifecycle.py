"""Answers, checkpoints, fork and regenerate over the public API; the test plays the worker."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from domain import commands, replies
from domain.events.envelope import Draft
from domain.events.item import (
    CheckpointReached,
    ItemCompleted,
    ItemFrames,
    ToolCallData,
    ToolResultSnapshot,
    ToolStarted,
)
from domain.ids import CommandKey, Fence, Ordinal, SessionId, TurnId
from domain.parts import Requirement
from tests.support.client import Client
from tests.support.databases import Databases
from tests.support.gateways import AGENT, HttpStand, http_stand


class Worker:
    """Writes what an executor would write."""

    def __init__(self, stand: HttpStand, claim: replies.ClaimedTurn) -> None:
        self.stand = stand
        self.claim = claim
        self.frame = claim.frame_base
        self.ordinal = 0

    def number(self) -> int:
        self.frame += 1
        return self.frame

    def draft(self, shape: Any, private: bytes | None = None, **fields: Any) -> Draft:
        data = shape(attempt=self.claim.attempt, frame=self.number(), **fields)
        return Draft(data, TurnId(self.claim.turn_id), private)

    def call(self, call_id: str) -> tuple[str, Draft]:
        item_id, first = self.stand.ids.uuid7(), self.number()
        made = ToolCallData(tool_call_id=call_id, name="do", idempotent=True)
        frames = ItemFrames(runs=[(first, 2)], cuts=[])
        return item_id, self.draft(ItemCompleted, item_id=item_id, kind="tool_call", tool_call=made, frames=frames)

    def started(self, item_id: str, call_id: str) -> Draft:
        return self.draft(ToolStarted, tool_call_id=call_id, item_id=item_id)

    def result(self, item_id: str, call_id: str) -> Draft:
        sizes = {"original_bytes": 1, "stored_bytes": 1}
        fields: dict[str, Any] = {
            "tool_call_id": call_id,
            "item_id": item_id,
            "revision": 1,
            "final": True,
            "output": "x",
            **sizes,
        }
        return self.draft(ToolResultSnapshot, **fields)

    def checkpoint(self, reason: str, index: int = 1) -> Draft:
        return self.draft(CheckpointReached, private=b"[]", message_index=index, reason=reason)

    def _common(self) -> dict[str, Any]:
        self.ordinal += 1
        return {
            "session_id": SessionId(self.claim.session_id),
            "key": CommandKey(self.stand.ids.uuid7()),
            "turn_id": TurnId(self.claim.turn_id),
            "fence": Fence(self.claim.fence),
            "ordinal": Ordinal(self.ordinal),
        }

    async def record(self, *drafts: Draft) -> None:
        await self.stand.pipeline.execute(commands.RecordEvents(**self._common(), events=list(drafts)))

    async def pause(self, *call_ids: str, **more: Any) -> None:
        asked = [Requirement(tool_call_id=one, kind="approval", tool_name="do", **more) for one in call_ids]
        command = commands.PauseTurn(
            **self._common(), attempt=self.claim.attempt, frame=self.number(), requirements=asked
        )
        await self.stand.pipeline.execute(command)

    async def finish(self, outcome: Any = "completed") -> None:
        command = commands.FinishTurn(
            **self._common(), attempt=self.claim.attempt, frame=self.number(), outcome=outcome, output="done"
        )
        await self.stand.pipeline.execute(command)


@pytest.fixture
async def stand(databases: Databases) -> AsyncIterator[HttpStand]:
    async with http_stand(databases, gateways=2) as running:
        yield running


async def begun(stand: HttpStand, ann: Client, session: str | None = None, text: str = "go") -> tuple[str, str, Worker]:
    """A session with a running turn."""
    session = session or await ann.create(AGENT)
    turn = (await ann.submit(session, text))["turn_id"]
    return session, turn, Worker(stand, await stand.claim(session))


def path(session: str, turn: str, action: str) -> str:
    return f"/v1/sessions/{session}/turns/{turn}/{action}"


def yes(*call_ids: str) -> dict[str, Any]:
    return {"answers": [{"tool_call_id": one, "approved": True} for one in call_ids]}


async def test_h04_answers_one_by_one_and_all_that_is_refused(stand: HttpStand) -> None:
    """H04: a subset is kept and the turn waits on; unknown, undecided, contrary and late answers are refused."""
    ann = stand.client()
    session, turn, worker = await begun(stand, ann)
    at = path(session, turn, "continue")
    early = await ann.json("POST", at, yes("a"), status=409)
    assert (early["code"], early["turn_status"]) == ("turn_not_paused", "running")
    await worker.pause("a", "b")
    first = await ann.json("POST", at, yes("a"), status=202)
    assert (first["turn_id"], first["status"]) == (turn, "paused")
    assert (await ann.json("GET", f"/v1/sessions/{session}/status"))["chat_status"] == "human"
    assert (await ann.json("POST", at, yes("nobody"), status=422))["code"] == "unknown_requirement"
    undecided = {"answers": [{"tool_call_id": "b", "note": "hm"}]}
    assert (await ann.json("POST", at, undecided, status=422))["code"] == "undecided_answer"
    contrary = {"answers": [{"tool_call_id": "a", "approved": False}]}
    assert (await ann.json("POST", at, contrary, status=409))["code"] == "answer_conflict"
    assert (await ann.json("POST", at, {"answers": []}, status=422))["code"] == "invalid_request"
    twice = {"answers": [*yes("b")["answers"], *yes("b")["answers"]]}
    assert (await ann.json("POST", at, twice, status=422))["code"] == "invalid_request"
    mixed = {"answers": [*yes("b")["answers"], *contrary["answers"]]}
    assert (await ann.json("POST", at, mixed, status=409))["code"] == "answer_conflict"
    assert [e["type"] for e in await ann.events(session)].count("turn.answered") == 1, "all of them or none"
    await ann.json("POST", at, yes("a", "b"), status=202)
    assert (await ann.json("GET", f"/v1/sessions/{session}/status"))["chat_status"] == "agent"
    await ann.json("POST", at, yes("b"), status=202)
    types = [e["type"] for e in await ann.events(session)]
    assert types[-3:] == ["turn.answered", "turn.answered", "turn.continued"]
    again = Worker(stand, await stand.claim(session))
    assert again.claim.reason == "continued"
    assert (await ann.json("POST", at, contrary, status=409))["code"] == "answer_conflict"
    await again.finish()
    await ann.json("POST", at, yes("a"), status=202)


async def test_h04_no_answer_counts_after_the_expiry_or_a_cancel(stand: HttpStand) -> None:
    ann = stand.client()
    session, turn, worker = await begun(stand, ann)
    await worker.pause("a", expires_at="2020-01-01T00:00:00.000000Z")
    late = await ann.json("POST", path(session, turn, "continue"), yes("a"), status=409)
    assert late["code"] == "requirement_expired"
    command = commands.ClaimTurn(
        session_id=SessionId(session),
        key=CommandKey(stand.ids.uuid7()),
        worker_id=stand.ids.uuid7(),  # type: ignore[arg-type]
    )
    await stand.pipeline.execute(command)
    ended = await ann.turn(session, turn)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "requirement_expired")
    session, turn, worker = await begun(stand, ann)
    await worker.pause("a")
    await ann.json("POST", path(session, turn, "cancel"))
    cancelled = await ann.json("POST", path(session, turn, "continue"), yes("a"), status=409)
    assert (cancelled["code"], cancelled["turn_status"]) == ("turn_not_paused", "cancelled")


async def test_h01_answers_in_any_order_at_once_continue_once(stand: HttpStand) -> None:
    """H01: five questions, answered in random order at the same instant over two gateways."""
    clients = stand.client(0), stand.client(1)
    for _ in range(10):
        session, turn, worker = await begun(stand, clients[0])
        asked = [f"c{n}" for n in range(5)]
        await worker.pause(*asked)
        random.shuffle(asked)
        at = path(session, turn, "continue")
        await asyncio.gather(*(clients[n % 2].json("POST", at, yes(one), status=202) for n, one in enumerate(asked)))
        types = [e["type"] for e in await clients[0].events(session)]
        assert types.count("turn.answered") == 5
        assert types.count("turn.continued") == 1
        assert types[-1] == "turn.continued"
        again = Worker(stand, await stand.claim(session))
        await again.finish()


async def test_h03_two_tabs_and_a_retry_are_one_answer(stand: HttpStand) -> None:
    """H03: the first answer wins, equal ones are fine, a contrary one is refused; a retry with a key gets its reply."""
    a, b = stand.client(0), stand.client(1)
    session, turn, worker = await begun(stand, a)
    await worker.pause("x", "y")
    at = path(session, turn, "continue")
    sent = await asyncio.gather(*(tab.request("POST", at, yes("x"), Idempotency_Key="k") for tab in (a, b, a, b)))
    assert {answer.status_code for answer in sent} == {202}
    assert len({answer.content for answer in sent}) == 1
    no = {"answers": [{"tool_call_id": "y", "approved": False}]}
    raced = await asyncio.gather(a.request("POST", at, yes("y")), b.request("POST", at, no))
    assert sorted(answer.status_code for answer in raced) == [202, 409]
    assert [e["type"] for e in await a.events(session)].count("turn.answered") == 2


async def test_checkpoints_and_where_a_fork_snaps_to(stand: HttpStand) -> None:
    ann = stand.client()
    session, turn, worker = await begun(stand, ann)
    item, call = worker.call("call_0")
    await worker.record(call, worker.checkpoint("tool_batch", 2), worker.started(item, "call_0"))
    assert await ann.json("GET", path(session, turn, "checkpoints")) == []
    await worker.record(worker.result(item, "call_0"), worker.checkpoint("tool_batch", 3))
    item, call = worker.call("call_0")
    await worker.record(call, worker.checkpoint("tool_batch", 4), worker.started(item, "call_0"))
    await worker.record(worker.result(item, "call_0"), worker.checkpoint("tool_batch", 5))
    await worker.record(worker.checkpoint("end", 6))
    await worker.finish()
    found = await ann.json("GET", path(session, turn, "checkpoints"))
    assert [(c["reason"], c["message_index"], c["status"], c["is_latest"]) for c in found] == [
        ("tool_batch", 3, "running", False),
        ("tool_batch", 5, "running", False),
        ("end", 6, "completed", True),
    ]
    one, two, end = (c["sequence"] for c in found)
    last = (await ann.turn(session, turn))["last_sequence"]
    first = (await ann.turn(session, turn))["first_sequence"]

    async def fork(place: Any, **body: Any) -> dict[str, Any]:
        sent = {"from": place, "input": "other", **body}
        made: dict[str, Any] = await ann.json("POST", path(session, turn, "fork"), sent, status=202)
        return made

    for asked, given in ((one, one), (two, two), (two - 1, one), (end, end), (last, end), (first + 1, first)):
        made = await fork(asked)
        assert made["forked_from"] == {"turn_id": turn, "sequence": given}
        assert made.get("snapped", False) == (asked != given)
    assert (await fork("last_user"))["forked_from"] == {"turn_id": turn, "sequence": first}
    assert (await fork("end"))["forked_from"] == {"turn_id": turn}
    for place in (first - 1, last + 1, 10**6):
        refused = await ann.json("POST", path(session, turn, "fork"), {"from": place}, status=422)
        assert refused["code"] == "fork_out_of_range"
    assert (await ann.json("POST", path(session, turn, "fork"), {"from": "middle"}, status=422))["code"] == (
        "invalid_request"
    )
    copied = await ann.json("POST", path(session, turn, "fork"), {"from": "last_user"}, status=202)
    assert (await ann.turn(session, copied["turn_id"]))["input"] == [{"type": "text", "text": "go"}]
    key = {"Idempotency_Key": "f"}
    sent = [await ann.request("POST", path(session, turn, "fork"), {"from": two - 1}, **key) for _ in range(2)]
    assert sent[0].content == sent[1].content
    assert sent[1].headers["Idempotency-Replayed"] == "true"


async def test_regenerate_supersedes_when_it_completes(stand: HttpStand) -> None:
    ann = stand.client()
    session, turn, worker = await begun(stand, ann)
    at = path(session, turn, "regenerate")
    assert (await ann.json("POST", at, status=409))["code"] == "turn_not_terminal"
    await worker.finish()
    made = await ann.json("POST", at, {"additional_instructions": "shorter"}, status=202)
    fresh = await ann.turn(session, made["turn_id"])
    assert [part["text"] for part in fresh["input"]] == ["go", "shorter"]
    assert (await ann.turn(session, turn))["superseded_by"] is None
    await Worker(stand, await stand.claim(session)).finish()
    assert (await ann.turn(session, turn))["superseded_by"] == made["turn_id"]
    assert [m["status"] for m in await ann.messages(session) if m["turn_id"] == turn] == ["superseded"]
    beside = await ann.json("POST", at, {"replace_original": False}, status=202)
    await Worker(stand, await stand.claim(session)).finish()
    assert (await ann.turn(session, turn))["superseded_by"] == made["turn_id"]
    assert (await ann.turn(session, beside["turn_id"]))["status"] == "completed"


async def test_what_never_started_can_be_regenerated_and_not_forked(stand: HttpStand) -> None:
    ann = stand.client()
    session, _, worker = await begun(stand, ann)
    waiting = (await ann.submit(session, "later"))["turn_id"]
    refused = await ann.json("POST", path(session, waiting, "fork"), {"from": "last_user"}, status=422)
    assert refused["code"] == "fork_out_of_range"
    await ann.json("POST", path(session, waiting, "cancel"))
    made = await ann.json("POST", path(session, waiting, "regenerate"), status=202)
    await worker.finish()
    claim = await stand.claim(session)
    assert (claim.turn_id, claim.parent_turn_id) == (made["turn_id"], worker.claim.turn_id)
