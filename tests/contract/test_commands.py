"""What every command pipeline does, whatever it stores in."""

import asyncio
import itertools
from typing import Any

import pytest

from domain import commands, replies
from domain.commands import CancelTurn, ClaimTurn, CloseSession, ContinueTurn, InterruptTurn, PauseTurn
from domain.errors import (
    IdempotencyMismatch,
    IllegalEvents,
    NotAdmitted,
    NothingToClaim,
    PayloadTooLarge,
    QueueFull,
    Rejection,
    SessionBusy,
    SessionNotFound,
    StaleFence,
    TooManyTurns,
    TurnNotCancellable,
    UnknownRequirement,
)
from domain.events.envelope import Draft, envelope_of
from domain.events.item import ToolStarted
from domain.ids import CommandKey, Ordinal, SessionId, TurnId
from domain.parts import Answer, Failure, Requirement
from tests.contract.stands import InMemory, OnPostgres
from tests.support.checker import SessionCheck
from tests.support.stand import Stand

FAILED = {"outcome": "failed", "error": Failure(code="agent_error", message="no")}


class CommandContract:
    """One body; see the classes at the end for what it runs on."""

    async def test_an_accepted_input_is_one_committed_queued_turn(self, stand: Stand) -> None:
        session = await stand.create()
        reply = await stand.submit(session, "one")
        assert (reply.status, reply.enqueue_sequence, reply.sequence, reply.queue_state) == ("queued", 1, 2, "open")
        assert await stand.types(session) == ["session.created", "turn.queued"]
        head = (await stand.store.heads([session]))[session]
        assert (head.last_sequence, head.queued_count, head.active_turn_id) == (2, 1, None)

    async def test_turns_start_in_order_one_at_a_time_and_each_follows_the_last(self, stand: Stand) -> None:
        session, worker = await stand.create(), await stand.worker()
        queued = [await stand.submit(session, text) for text in "abc"]
        first = await stand.claim(session, worker)
        with pytest.raises(NothingToClaim):
            await stand.claim(session, worker)
        second = (await stand.finish(first, claim_next=worker)).next
        assert second is not None
        third = (await stand.finish(second, claim_next=worker)).next
        assert third is not None
        last = await stand.finish(third, claim_next=worker)
        assert last.next is None
        assert [first.turn_id, second.turn_id, third.turn_id] == [reply.turn_id for reply in queued]
        assert (first.parent_turn_id, second.parent_turn_id) == (None, first.turn_id)
        assert third.parent_turn_id == second.turn_id
        assert [first.fence, second.fence, third.fence] == [1, 2, 3]
        head = (await stand.store.heads([session]))[session]
        assert (head.active_turn_id, head.tip_turn_id, head.queued_count) == (None, third.turn_id, 0)

    async def test_c08_a_repeated_key_gets_the_first_reply_and_another_request_is_refused(self, stand: Stand) -> None:
        session = await stand.create()
        command = stand.submission(session, "one", key=CommandKey("k"))
        first = await stand.pipeline.execute(command)
        again = await stand.pipeline.execute(stand.submission(session, "one", key=CommandKey("k")))
        assert (again.reply, again.replayed, first.replayed) == (first.reply, True, False)
        with pytest.raises(IdempotencyMismatch):
            await stand.submit(session, "two", key=CommandKey("k"))
        assert len(await stand.events(session)) == 2

    async def test_c07_one_key_sent_twenty_times_at_once_is_one_turn(self, stand: Stand) -> None:
        session = await stand.create()
        sent = [stand.submission(session, "one", key=CommandKey("k")) for _ in range(20)]
        outcomes = await asyncio.gather(*map(stand.pipeline.execute, sent))
        assert len({outcome.reply for outcome in outcomes}) == 1
        assert sum(not outcome.replayed for outcome in outcomes) == 1
        assert await stand.types(session) == ["session.created", "turn.queued"]

    async def test_where_nothing_may_begin_a_known_key_is_answered(self, stand: Stand) -> None:
        session, owner = await stand.create(), stand.ids.uuid7()
        first = await stand.pipeline.execute(stand.submission(session, "one", key=CommandKey("k"), owner=owner))
        again = stand.submission(session, "one", key=CommandKey("k"), admitted=False)
        assert (await stand.pipeline.execute(again)).reply == first.reply
        with pytest.raises(NotAdmitted):
            await stand.submit(session, "two", admitted=False)
        with pytest.raises(SessionNotFound):
            await stand.submit(SessionId(stand.ids.uuid7()), owner=owner)
        assert len(await stand.events(session)) == 2

    async def test_an_owners_quota_counts_all_sessions_and_what_has_not_ended(self, stand: Stand) -> None:
        owner, sessions = stand.ids.uuid7(), [await stand.create() for _ in range(11)]
        # A thousand at once and a few more: none too many is accepted, whatever is committed beside it.
        sent = [stand.submission(session, "x", owner=owner) for session in sessions[:10] for _ in range(98)]
        sent += [stand.submission(sessions[10], "x", owner=owner) for _ in range(30)]
        answers = await asyncio.gather(*map(stand.pipeline.execute, sent), return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, TooManyTurns)]
        assert len(answers) - len(refused) == 1000
        assert refused[0].fields == {"limit": 1000}
        assert not [answer for answer in answers if isinstance(answer, Exception) and answer not in refused]
        await stand.submit(sessions[10], "y", owner=stand.ids.uuid7())
        claim = await stand.claim(sessions[0], await stand.worker())
        with pytest.raises(TooManyTurns):
            await stand.submit(sessions[0], "y", owner=owner)
        await stand.finish(claim)
        await stand.submit(sessions[0], "y", owner=owner)
        with pytest.raises(TooManyTurns):
            await stand.submit(sessions[0], "z", owner=owner)

    async def test_a_refusal_is_not_remembered(self, stand: Stand) -> None:
        session, worker = await stand.create(), await stand.worker()
        first = await stand.submit(session)
        with pytest.raises(SessionBusy) as refused:
            await stand.submit(session, if_busy="reject", key=CommandKey("k"))
        assert refused.value.fields == {"active_turn_id": first.turn_id}
        await stand.finish(await stand.claim(session, worker))
        assert (await stand.submit(session, if_busy="reject", key=CommandKey("k"))).enqueue_sequence == 2

    async def test_a_refused_command_disturbs_none_of_its_neighbours(self, stand: Stand) -> None:
        session, other = await stand.create(), await stand.create()
        nobody = SessionId(stand.ids.uuid7())
        good = [stand.submission(session, str(n)) for n in range(5)]
        cancel = CancelTurn(session_id=session, key=stand.key(), turn_id=TurnId(stand.ids.uuid7()))
        bad = [stand.submission(nobody), cancel, stand.submission(session, "x" * 300_000)]
        mixed = [good[0], bad[0], good[1], bad[1], good[2], bad[2], good[3], good[4], stand.submission(other)]
        answers = await asyncio.gather(*map(stand.pipeline.execute, mixed), return_exceptions=True)
        assert [isinstance(answer, Rejection) for answer in answers] == [command in bad for command in mixed]
        assert await stand.types(session) == ["session.created", *["turn.queued"] * 5]
        with pytest.raises(SessionNotFound):
            await stand.events(nobody)

    async def test_an_executor_command_is_repeatable_by_ordinal_and_never_goes_back(self, stand: Stand) -> None:
        session, worker = await stand.create(), await stand.worker()
        await stand.submit(session)
        claim = await stand.claim(session, worker)
        one = stand.record_of(claim, [stand.text(claim, "a", 1)], 1)
        first = await stand.pipeline.execute(one)
        again = await stand.pipeline.execute(one)
        assert (again.reply, again.replayed) == (first.reply, True)
        await stand.record(claim, [stand.text(claim, "b", 4)], 2)
        with pytest.raises(StaleFence):
            await stand.pipeline.execute(one)
        finish = stand.finish_of(claim, ordinal=Ordinal(3))
        first = await stand.pipeline.execute(finish)
        again = await stand.pipeline.execute(finish)
        assert (again.reply, again.replayed) == (first.reply, True)
        assert (await stand.types(session))[2:] == [
            "turn.started",
            "item.completed",
            "item.completed",
            "turn.completed",
        ]

    async def test_a_repeated_claim_gets_its_claim_again(self, stand: Stand) -> None:
        session, worker = await stand.create(), await stand.worker()
        await stand.submit(session)
        command = ClaimTurn(session_id=session, key=stand.key(), worker_id=worker)
        first = await stand.pipeline.execute(command)
        again = await stand.pipeline.execute(command)
        assert (again.reply, again.replayed) == (first.reply, True)
        other = ClaimTurn(session_id=session, key=stand.key(), worker_id=worker)
        with pytest.raises(NothingToClaim):
            await stand.pipeline.execute(other)

    async def test_k05_who_lost_its_claim_cannot_write(self, stand: Stand) -> None:
        session, worker, other = await stand.create(), await stand.worker(), await stand.worker()
        await stand.submit(session)
        await stand.submit(session)
        lost = await stand.claim(session, worker)
        claim = ClaimTurn(session_id=session, key=stand.key(), worker_id=other)
        take_over = ClaimTurn(session_id=session, key=stand.key(), worker_id=other, take_over=True)
        with pytest.raises(NothingToClaim):
            await stand.pipeline.execute(take_over)
        await stand.leases.end(worker)
        with pytest.raises(NothingToClaim):
            await stand.pipeline.execute(claim)
        taken = (await stand.run(take_over, replies.ClaimReply)).claim
        assert taken is not None
        assert (taken.turn_id, taken.attempt, taken.reason) == (lost.turn_id, 2, "worker_lost")
        assert taken.fence > lost.fence
        before = await stand.types(session)
        for command in (stand.record_of(lost, [stand.text(lost, "late")]), stand.finish_of(lost)):
            with pytest.raises(StaleFence):
                await stand.pipeline.execute(command)
        assert await stand.types(session) == before
        await stand.finish(taken)
        assert (await stand.types(session))[-1] == "turn.completed"

    async def test_the_queue_pauses_after_a_failure_only_if_something_waits(self, stand: Stand) -> None:
        session, worker = await stand.create(), await stand.worker()
        await stand.submit(session)
        await stand.finish(await stand.claim(session, worker), **FAILED)
        assert (await stand.types(session))[-1] == "turn.failed"
        await stand.submit(session)
        waiting = await stand.submit(session)
        ended = await stand.finish(await stand.claim(session, worker), claim_next=worker, **FAILED)
        assert ended.next is None
        assert (await stand.types(session))[-2:] == ["turn.failed", "session.queue_paused"]
        with pytest.raises(NothingToClaim):
            await stand.claim(session, worker)
        late = await stand.submit(session)
        assert late.queue_state == "paused"
        for reply in (late, waiting):
            cancel = CancelTurn(session_id=session, key=stand.key(), turn_id=TurnId(reply.turn_id))
            assert (await stand.run(cancel, replies.TurnReply)).status == "cancelled"
        assert (await stand.types(session))[-2:] == ["turn.cancelled", "session.queue_resumed"]
        with pytest.raises(TurnNotCancellable):
            await stand.pipeline.execute(CancelTurn(session_id=session, key=stand.key(), turn_id=TurnId(late.turn_id)))

    async def test_an_interrupt_is_a_stored_intent_that_the_finish_meets(self, stand: Stand) -> None:
        session, worker = await stand.create(), await stand.worker()
        await stand.submit(session)
        await stand.submit(session)
        claim = await stand.claim(session, worker)
        ask = InterruptTurn(session_id=session, key=stand.key(), turn_id=TurnId(claim.turn_id), by="ann")
        await stand.pipeline.execute(ask)
        assert stand.notifier.signals == [(claim.turn_id, b'{"type":"interrupt"}')]
        told = await stand.record(claim, [stand.text(claim, "a")])
        assert told.interrupt_requested
        ended = await stand.finish(claim, ordinal=Ordinal(2), claim_next=worker)
        assert (ended.status, ended.next) == ("interrupted", None)
        assert (await stand.types(session))[-2:] == ["turn.interrupted", "session.queue_paused"]

    async def test_a_paused_turn_keeps_its_place_and_goes_on_when_all_is_answered(self, stand: Stand) -> None:
        session, worker = await stand.create(), await stand.worker()
        await stand.submit(session)
        behind = await stand.submit(session)
        claim = await stand.claim(session, worker)
        asked = [Requirement(tool_call_id=c, kind="approval", tool_name="t") for c in ("c1", "c2")]
        fields = {name: getattr(stand.finish_of(claim), name) for name in ("session_id", "key", "turn_id", "fence")}
        pause = PauseTurn(
            **fields, ordinal=Ordinal(1), attempt=claim.attempt, frame=claim.frame_base + 5, requirements=asked
        )
        assert (await stand.run(pause, replies.ExecutorReply)).status == "paused"
        with pytest.raises(NothingToClaim):
            await stand.claim(session, worker)
        wakes = len(stand.notifier.wakes)
        for call in ("c1", "c2"):
            answer = ContinueTurn(
                session_id=session,
                key=stand.key(),
                turn_id=TurnId(claim.turn_id),
                answers={call: Answer(approved=True, by="ann")},
            )
            await stand.pipeline.execute(answer)
        assert len(stand.notifier.wakes) == wakes + 1
        again = await stand.claim(session, worker)
        assert (again.turn_id, again.reason, again.attempt) == (claim.turn_id, "continued", 1)
        assert again.frame_base == claim.frame_base + 6
        following = (await stand.finish(again, claim_next=worker)).next
        assert following is not None
        assert following.turn_id == behind.turn_id

    async def test_a_late_repeat_of_an_answer_answers_no_later_pause_of_the_same_call_id(self, stand: Stand) -> None:
        """Providers count their calls from one in every response. Keyless, since a key is answered from the log."""
        session, worker = await stand.create(), await stand.worker()
        await stand.submit(session)
        asked = [Requirement(tool_call_id="call_1", kind="approval", tool_name="t", item_id=i) for i in ("i1", "i2")]

        async def ask(requirement: Requirement) -> TurnId:
            claim = await stand.claim(session, worker)
            fields = {name: getattr(stand.finish_of(claim), name) for name in ("session_id", "key", "turn_id", "fence")}
            fields |= {"attempt": claim.attempt, "frame": claim.frame_base + 5, "ordinal": Ordinal(1)}
            await stand.pipeline.execute(PauseTurn(**fields, requirements=[requirement]))
            return TurnId(claim.turn_id)

        async def answer(turn_id: TurnId, approved: bool = True, **items: str) -> None:
            answers = {"call_1": Answer(approved=approved, by="ann")}
            fields: dict[str, Any] = {"session_id": session, "key": stand.key(), "turn_id": turn_id, "answers": answers}
            await stand.pipeline.execute(ContinueTurn(**fields, items=items))

        turn_id = await ask(asked[0])
        with pytest.raises(UnknownRequirement):
            await answer(turn_id, call_1="i2")
        await answer(turn_id, call_1="i1")
        await answer(turn_id, call_1="i1")
        await ask(asked[1])
        before = await stand.types(session)
        with pytest.raises(UnknownRequirement):
            await answer(turn_id, call_1="i1")
        assert await stand.types(session) == before
        await answer(turn_id, approved=False, call_1="i2")
        assert (await stand.types(session))[len(before) :] == ["turn.answered", "turn.continued"]

    async def test_an_answer_without_an_item_is_for_what_is_asked_now(self, stand: Stand) -> None:
        session, worker = await stand.create(), await stand.worker()
        await stand.submit(session)
        claim = await stand.claim(session, worker)
        fields = {name: getattr(stand.finish_of(claim), name) for name in ("session_id", "key", "turn_id", "fence")}
        fields |= {"attempt": claim.attempt, "frame": claim.frame_base + 5, "ordinal": Ordinal(1)}
        asked = Requirement(tool_call_id="call_1", kind="approval", tool_name="t", item_id="i2")
        await stand.pipeline.execute(PauseTurn(**fields, requirements=[asked]))
        answers = {"call_1": Answer(approved=True, by="ann")}
        command = ContinueTurn(session_id=session, key=stand.key(), turn_id=TurnId(claim.turn_id), answers=answers)
        await stand.pipeline.execute(command)
        assert (await stand.types(session))[-2:] == ["turn.answered", "turn.continued"]

    async def test_a_regenerated_turn_is_superseded_by_the_one_that_completes(self, stand: Stand) -> None:
        session, worker = await stand.create(), await stand.worker()
        old = await stand.submit(session, "question")
        await stand.finish(await stand.claim(session, worker))
        again = commands.RegenerateTurn(
            session_id=session, key=stand.key(), turn_id=TurnId(stand.ids.uuid7()), source_turn_id=TurnId(old.turn_id)
        )
        await stand.pipeline.execute(again)
        await stand.finish(await stand.claim(session, worker))
        events = await stand.events(session)
        assert [event.type for event in events][-2:] == ["turn.completed", "turn.superseded"]
        assert events[-1].turn_id == old.turn_id

    async def test_a_released_turn_is_no_longer_its_holders_and_wakes_others(self, stand: Stand) -> None:
        session, worker = await stand.create(), await stand.worker()
        await stand.submit(session)
        claim = await stand.claim(session, worker)
        fields = {name: getattr(stand.finish_of(claim), name) for name in ("session_id", "key", "turn_id", "fence")}
        wakes = len(stand.notifier.wakes)
        await stand.run(commands.ReleaseTurn(**fields, ordinal=Ordinal(1)), replies.ExecutorReply)
        assert len(stand.notifier.wakes) == wakes + 1
        with pytest.raises(StaleFence):
            await stand.finish(claim, ordinal=Ordinal(2))

    async def test_closing_cancels_what_waits_and_ends_with_the_running_turn(self, stand: Stand) -> None:
        session, worker = await stand.create(), await stand.worker()
        for _ in range(3):
            await stand.submit(session)
        claim = await stand.claim(session, worker)
        close = CloseSession(session_id=session, key=CommandKey("bye"))
        assert not (await stand.run(close, replies.SessionReply)).closed
        with pytest.raises(SessionNotFound):
            await stand.submit(session)
        await stand.finish(claim, claim_next=worker)
        assert (await stand.types(session))[-5:] == [
            "turn.cancelled",
            "turn.cancelled",
            "turn.interrupt_requested",
            "turn.interrupted",
            "session.closed",
        ]
        again = await stand.pipeline.execute(close)
        assert again.replayed
        head = (await stand.store.heads([session]))[session]
        assert head.closed_at is not None

    async def test_a_cancel_and_a_claim_at_once_leave_the_second_turn_claimable(self, stand: Stand) -> None:
        session, worker = await stand.create(), await stand.worker()
        first, second = await stand.submit(session), await stand.submit(session)
        cancel = CancelTurn(session_id=session, key=stand.key(), turn_id=TurnId(first.turn_id))
        _, claim = await asyncio.gather(stand.pipeline.execute(cancel), stand.claim(session, worker))
        assert claim.turn_id == second.turn_id

    async def test_what_cannot_follow_is_refused_and_writes_nothing(self, stand: Stand) -> None:
        session, worker = await stand.create(), await stand.worker()
        await stand.submit(session)
        other = await stand.submit(session)
        claim = await stand.claim(session, worker)
        tool = ToolStarted(attempt=1, frame=1, tool_call_id="c", item_id="i")
        before = await stand.types(session)
        with pytest.raises(IllegalEvents):
            await stand.record(claim, [stand.text(claim, "a"), Draft(tool, TurnId(other.turn_id))])
        assert await stand.types(session) == before

    async def test_d12_a_payload_above_the_limit_is_refused_at_the_producer(self, stand: Stand) -> None:
        session, worker = await stand.create(), await stand.worker()
        await stand.submit(session)
        claim = await stand.claim(session, worker)
        with pytest.raises(PayloadTooLarge) as refused:
            await stand.record(claim, [stand.text(claim, "small"), stand.text(claim, "x" * 600_000, 4)])
        assert refused.value.fields["limit"] == 512 * 1024
        await stand.record(claim, [stand.text(claim, "small")])
        assert (await stand.types(session))[-2:] == ["turn.started", "item.completed"]

    async def test_the_queue_has_a_depth(self, stand: Stand) -> None:
        session = await stand.create()
        many = [stand.submission(session) for _ in range(105)]
        answers = await asyncio.gather(*map(stand.pipeline.execute, many), return_exceptions=True)
        assert [type(answer) for answer in answers[100:]] == [QueueFull] * 5
        assert len(await stand.events(session)) == 101

    async def test_the_chain_holds_by_an_independent_check(self, stand: Stand) -> None:
        session, worker = await stand.create(), await stand.worker()
        await stand.submit(session, "ünïcode \U0001f600 \\u0041", metadata={"b": [1, 2.5], "a": None}, external_id="x")
        await stand.submit(session)
        claim = await stand.claim(session, worker)
        await stand.record(claim, [stand.text(claim, 'answer\n"quoted"')])
        following = (await stand.finish(claim, ordinal=Ordinal(2), claim_next=worker)).next
        assert following is not None
        await stand.finish(following)
        check = SessionCheck(session)
        for event in await stand.events(session):
            row = {name: getattr(event, name) for name in event.__struct_fields__}
            check.row(row, event.created_at)
        assert check.sequence == 8
        assert check.end() == []

    async def test_published_is_what_is_committed_in_order(self, stand: Stand) -> None:
        session, worker = await stand.create(), await stand.worker()
        await asyncio.gather(*[stand.submit(session) for _ in range(5)])
        await stand.finish(await stand.claim(session, worker))
        published = [p.envelope for p in stand.notifier.events if p.session_id == session]
        assert published == [envelope_of(event) for event in await stand.events(session)]
        private = [event for event in await stand.events(session) if event.private is not None]
        assert private
        assert all(event.private not in envelope for event in private for envelope in published if event.private)

    async def test_a_wake_hint_follows_what_leaves_something_startable(self, stand: Stand) -> None:
        session, worker = await stand.create(), await stand.worker()
        assert stand.notifier.wakes == []
        await stand.submit(session)
        assert stand.notifier.wakes == ["default"]
        await stand.submit(session)
        claim = await stand.claim(session, worker)
        await stand.submit(session)
        assert len(stand.notifier.wakes) == 2
        ended = await stand.finish(claim)
        assert ended.queue_waits
        assert len(stand.notifier.wakes) == 3


class TestCommandsInMemory(InMemory, CommandContract):
    """On the memory implementation."""

    async def test_times_of_a_session_never_go_back(self, stand: Stand) -> None:
        assert stand.clock is not None
        session = await stand.create()
        await stand.submit(session)
        stand.clock.set_back(3600)
        await stand.submit(session)
        stand.clock.advance(7200)
        await stand.submit(session)
        times = [event.created_at for event in await stand.events(session)]
        assert all(earlier <= later for earlier, later in itertools.pairwise(times))
        assert times[2] == times[1]
        assert times[3] == times[1] + 3600 * 1_000_000


class TestCommandsOnPostgres(OnPostgres, CommandContract):
    """On PostgreSQL."""
