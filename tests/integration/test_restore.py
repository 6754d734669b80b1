"""Backup and restore as documented: pg_dump, a fresh cluster whose transactions begin anew, `turnlog restore-stamp`."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import asyncpg
import msgspec
import pytest

from domain.ids import SessionId
from domain.parts import FilePart
from domain.ports import FeedEvent, FeedPosition, Statement, Transaction
from infra.embedded import EmbeddedPostgres
from infra.embedded.account import choose
from infra.embedded.binaries import postgres_binaries
from infra.postgres.audit_reader import open_audit_reader
from infra.postgres.blobs import PostgresBlobs
from infra.postgres.feed import PostgresFeed
from infra.postgres.migrate import migrate
from infra.postgres.names import SERVICE_ROLES, role_name
from infra.postgres.pool import Pool, create_pool
from infra.postgres.read_models import PostgresReadModels
from services.cli.auditing import audit_range
from services.cli.main import run
from tests.support.feeding import caught_up, running
from tests.support.servers import SharedPostgres
from tests.support.stand import postgres_stand

DATABASE = "turnlog"
BURNT = 3000


class Lines:
    """A line an event, so that one applied twice or never shows."""

    name = "lines"
    version = 1
    tables = ("lines",)
    definition = "CREATE TABLE lines (line bigint GENERATED ALWAYS AS IDENTITY, session_id uuid, sequence bigint);"

    async def apply(self, events: Sequence[FeedEvent], tx: Transaction) -> None:
        for event in events:
            insert = "INSERT INTO lines (session_id, sequence) VALUES ($1::uuid, $2)"
            await tx.execute(Statement(insert), event.session_id, event.sequence)

    async def erase(self, session_id: SessionId, tx: Transaction) -> None:
        """Numbers only."""


@pytest.fixture
async def fresh(place: Path, shared_postgres: SharedPostgres, postgres_version: str) -> AsyncIterator[EmbeddedPostgres]:
    """The cluster that is restored into."""
    await asyncio.to_thread(shared_postgres.copy_fresh_data, postgres_version, place / "second")
    server = EmbeddedPostgres(place / "second", version=postgres_version)
    await server.start()
    try:
        yield server
    finally:
        await server.kill()


def dsn(server: EmbeddedPostgres, passwords: EmbeddedPostgres, role: str) -> str:
    name = role_name(role)  # type: ignore[arg-type]
    return server.dsn(name, passwords.password_of(name), DATABASE)


def copied(old: EmbeddedPostgres, new: EmbeddedPostgres, version: str, file: Path) -> None:
    """The documented procedure."""
    tools = postgres_binaries(version, choose(file.parent)).directory

    def tool(name: str, *words: str, stdin: bytes | None = None) -> bytes:
        done = subprocess.run([tools / name, *words], input=stdin, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    roles = tool("pg_dumpall", "--roles-only", "-d", old.superuser_dsn)
    tool("psql", "-q", "-d", new.superuser_dsn, stdin=roles)
    tool("pg_dump", "-Fc", "-f", str(file), "-d", old.superuser_dsn.removesuffix("/postgres") + f"/{DATABASE}")
    tool("pg_restore", "--create", "--exit-on-error", "-d", new.superuser_dsn, str(file))


async def sequences(pool: Pool) -> dict[str, list[int]]:
    """As the feed gives them."""
    found: dict[str, list[int]] = {}
    for _, event in await PostgresFeed(pool).read(FeedPosition(), 10_000):
        found.setdefault(event.session_id, []).append(event.sequence)
    return found


async def test_a_dump_restored_into_a_fresh_cluster_has_its_whole_feed(
    own_postgres: EmbeddedPostgres,
    fresh: EmbeddedPostgres,
    postgres_version: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    old = own_postgres
    passwords = {role: old.password_of(role_name(role)) for role in SERVICE_ROLES["agent"]}
    await migrate(old.superuser_dsn, "agent", passwords=passwords)
    burning = await asyncpg.connect(old.superuser_dsn)
    for _ in range(BURNT):
        await burning.execute("SELECT pg_current_xact_id()")
    await burning.close()
    worker, feeding = (
        await create_pool(dsn(old, old, "worker"), size=2),
        await create_pool(dsn(old, old, "projector"), size=3),
    )
    async with postgres_stand(dsn(old, old, "worker"), worker) as stand:
        sessions = [await stand.create() for _ in range(3)]
        for session in sessions * 3:
            await stand.submit(session)
        async with running(feeding, Lines(), batch=4):
            await caught_up(feeding, "lines")
        attached = await PostgresBlobs(worker).keep(b"attached" * 50_000, "text/plain")
        for session in sessions:
            submission = stand.submission(session)
            part = FilePart(attached, "text/plain", "a.txt", 400_000)
            await stand.pipeline.execute(msgspec.structs.replace(submission, input=[*submission.input, part]))
    await worker.close()
    await feeding.close()

    await asyncio.to_thread(copied, old, fresh, postgres_version, tmp_path / "dump")
    feeding = await create_pool(dsn(fresh, old, "projector"), size=3)
    assert await sequences(feeding) == {}  # transactions of the other cluster lie in the future of this one
    await feeding.close()
    monkeypatch.setenv("TURNLOG_POSTGRES_ADMIN", fresh.superuser_dsn)
    capsys.readouterr()
    assert await asyncio.to_thread(run, ["restore-stamp"]) == 0
    assert capsys.readouterr().out == "the feed is in order; the epoch is 2\n"

    worker, feeding = (
        await create_pool(dsn(fresh, old, "worker"), size=2),
        await create_pool(dsn(fresh, old, "projector"), size=3),
    )
    assert await sequences(feeding) == {session: [1, 2, 3, 4, 5] for session in sessions}
    async with postgres_stand(dsn(fresh, old, "worker"), worker) as stand:
        await stand.submit(sessions[0])
        async with running(feeding, Lines(), batch=4):
            await caught_up(feeding, "lines")
        assert await sequences(feeding) == {s: [1, 2, 3, 4, 5] + ([6] if s == sessions[0] else []) for s in sessions}
        rows = await feeding.fetch("SELECT session_id, sequence FROM feed.lines ORDER BY line")
        for session in sessions:
            head = (await stand.store.heads([session]))[session].last_sequence
            assert [row["sequence"] for row in rows if row["session_id"] == session] == list(range(1, head + 1))
        assert await PostgresReadModels(worker).epoch() == 2
        assert await PostgresBlobs(worker).get(attached) == b"attached" * 50_000
    async with open_audit_reader(dsn(fresh, old, "projector")) as reader:
        for ids in await reader.ranges(1000):
            assert [r.findings async for r in audit_range(reader, ids)] == [[], [], []]
        # What the events name is noted as named, without the trigger.
        assert await reader.loose_blobs([(session, attached) for session in sessions]) == []
    await worker.close()
    assert await asyncio.to_thread(run, ["restore-stamp"]) == 2
    assert "stop all processes" in capsys.readouterr().err
    await feeding.close()
