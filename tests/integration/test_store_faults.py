"""What the store's own rules say of a command: a name that is taken, or a fault of ours."""

import asyncio

import asyncpg
import pytest
import structlog

from domain.commands import SubmitTurn
from domain.errors import AttachmentMissing, IdempotencyMismatch, InternalFault, TurnIdTaken
from domain.ids import CommandKey, SessionId, TurnId
from domain.ports import Outcome
from infra.pipeline.faults import refusal
from infra.postgres.pool import create_pool
from tests.support.databases import Database
from tests.support.stand import postgres_stand

CALLERS = {
    "turns_pkey": TurnIdTaken,
    "turns_external_id": TurnIdTaken,
    "turns_idempotency_key": IdempotencyMismatch,
    "blob_references_sha256_fkey": AttachmentMissing,
}
"""Constraints on what callers choose."""


async def test_of_all_constraints_only_those_on_callers_names_are_callers_faults(database: Database) -> None:
    command = SubmitTurn(
        session_id=SessionId("s"), key=CommandKey("k"), turn_id=TurnId("t-1"), input=[], external_id="mine"
    )
    connection = await asyncpg.connect(database.dsn)
    rows = await connection.fetch(
        """
        SELECT i.relname AS name FROM pg_index AS x
        INNER JOIN pg_class AS i ON i.oid = x.indexrelid
        INNER JOIN pg_class AS t ON t.oid = x.indrelid
        INNER JOIN pg_namespace AS n ON n.oid = t.relnamespace
        WHERE x.indisunique AND n.nspname = 'public'
        UNION
        SELECT conname FROM pg_constraint AS c
        INNER JOIN pg_namespace AS n ON n.oid = c.connamespace AND n.nspname = 'public'
        """
    )
    await connection.close()
    names = {row["name"] for row in rows}
    assert {*CALLERS, "turns_active", "events_pkey", "messages_place"} <= names
    for name in names:
        error = asyncpg.UniqueViolationError("no")
        error.constraint_name = name
        refused = refusal(error, command)
        assert type(refused) is CALLERS.get(name, InternalFault), name
        if name in ("turns_pkey", "turns_external_id"):
            assert refused is not None
            assert refused.fields["external_id"] == ("t-1" if name == "turns_pkey" else "mine")


async def test_rows_that_do_not_fit_are_a_fault_of_ours_and_disturb_nobody(database: Database) -> None:
    """A turn that the head does not know is running: no claim can succeed, whatever it is called."""
    dsn = await database.dsn_of("turnlog_worker")
    pool = await create_pool(dsn, size=2)
    async with postgres_stand(dsn, pool) as stand:
        good, bad, worker = await stand.create(), await stand.create(), await stand.worker()
        ghost = await stand.submit(bad, "ghost")
        await stand.submit(bad)
        connection = await asyncpg.connect(database.dsn)
        await connection.execute(
            "UPDATE turns SET status = 'running', enqueue_sequence = 99 WHERE turn_id = $1::text::uuid", ghost.turn_id
        )
        with structlog.testing.capture_logs() as logged:
            answers = await asyncio.gather(
                stand.claim(bad, worker), stand.submit(good), stand.submit(bad), return_exceptions=True
            )
        assert isinstance(answers[0], InternalFault)
        assert not any(isinstance(answer, Exception) for answer in answers[1:])
        (line,) = [line for line in logged if line.get("constraint")]
        assert (line["constraint"], line["command"], line["code"]) == ("turns_active", "ClaimTurn", "internal_error")
        assert await stand.types(bad) == ["session.created"] + ["turn.queued"] * 3
        await connection.execute(
            "UPDATE turns SET status = 'queued', enqueue_sequence = 1 WHERE turn_id = $1::text::uuid", ghost.turn_id
        )
        await connection.close()
        assert (await stand.claim(bad, worker)).turn_id == ghost.turn_id
    await pool.close()


async def test_a_turn_id_that_the_session_has_is_refused_as_that(database: Database) -> None:
    dsn = await database.dsn_of("turnlog_worker")
    pool = await create_pool(dsn, size=2)
    async with postgres_stand(dsn, pool) as stand:
        session = await stand.create()
        first = stand.submission(session)
        assert isinstance(await stand.pipeline.execute(first), Outcome)
        with pytest.raises(TurnIdTaken) as taken:
            await stand.submit(session, turn_id=first.turn_id)
        assert taken.value.fields["external_id"] == first.turn_id
    await pool.close()
