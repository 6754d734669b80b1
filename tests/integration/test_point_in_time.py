"""A restore to a point in time as documented: base backup, archived WAL, `turnlog restore-stamp`, and the anchor."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from domain.ids import SessionId
from infra.embedded import EmbeddedPostgres
from infra.embedded.account import choose
from infra.embedded.binaries import postgres_binaries
from infra.postgres.migrate import migrate
from infra.postgres.names import SERVICE_ROLES, role_name
from infra.postgres.pool import create_pool
from infra.postgres.read_models import PostgresReadModels
from services.cli.main import run
from tests.integration.test_restore import Lines, dsn, sequences
from tests.support.feeding import caught_up, running
from tests.support.servers import SharedPostgres
from tests.support.stand import Stand, postgres_stand
from tests.support.waiting import eventually

POINT = "before_the_mistake"


class Cluster:
    """The cluster that is backed up, with its archive of WAL beside it."""

    def __init__(self, place: Path, version: str) -> None:
        self.place = place
        self.version = version
        self.account = choose(place / "first")
        self.archive = place / "archive"
        self.archive.mkdir(mode=0o700)
        self.account.own(self.archive)
        archiving = {"archive_mode": "on", "archive_command": f"cp %p {self.archive}/%f"}
        self.server = EmbeddedPostgres(place / "first", version=version, settings=archiving)

    async def base_backup(self, target: Path) -> None:
        """As an operator makes one: pg_hba.conf lets the superuser replicate, nothing stops meanwhile."""
        admin = await asyncpg.connect(self.server.superuser_dsn)
        hba = Path(await admin.fetchval("SHOW hba_file"))
        hba.write_text(hba.read_text() + "host replication all 127.0.0.1/32 scram-sha-256\n")
        await admin.execute("SELECT pg_reload_conf()")
        await admin.close()
        tool = postgres_binaries(self.version, self.account).directory / "pg_basebackup"
        words = [str(tool), "-D", str(target), "-c", "fast", "-d", self.server.superuser_dsn]

        def backup() -> None:
            subprocess.run(words, check=True, capture_output=True)
            if self.account.switched:
                subprocess.run(["chown", "-R", f"{self.account.uid}:{self.account.gid}", target], check=True)

        await asyncio.to_thread(backup)

    async def lost(self) -> None:
        """The last WAL is in the archive, and the server is gone."""
        admin = await asyncpg.connect(self.server.superuser_dsn)
        segment = str(await admin.fetchval("SELECT pg_walfile_name(pg_switch_wal())"))

        async def archived() -> bool:
            return (self.archive / segment).exists()

        await eventually(archived, "the last segment is archived", timeout=60)
        await admin.close()
        await self.server.kill()

    def restored(self, shared: SharedPostgres, backup: Path) -> EmbeddedPostgres:
        """Another cluster, from the backup and the archive up to the point."""
        second = self.place / "second"
        shared.copy_fresh_data(self.version, second)
        data = min((found.parent for found in second.rglob("PG_VERSION")), key=lambda path: len(path.parts))
        shutil.rmtree(data)
        subprocess.run(["cp", "-a", backup, data], check=True)
        signal = data / "recovery.signal"
        signal.touch()
        self.account.own(signal)
        recovery = {
            "restore_command": f"cp {self.archive}/%f %p",
            "recovery_target_name": POINT,
            "recovery_target_action": "promote",
        }
        return EmbeddedPostgres(second, version=self.version, settings=recovery)


@pytest.fixture
async def cluster(place: Path, shared_postgres: SharedPostgres, postgres_version: str) -> AsyncIterator[Cluster]:
    await asyncio.to_thread(shared_postgres.copy_fresh_data, postgres_version, place / "first")
    made = Cluster(place, postgres_version)
    await made.server.start()
    try:
        yield made
    finally:
        await made.server.kill()


async def submit(stand: Stand, sessions: list[SessionId], turns: int) -> None:
    for session in sessions * turns:
        await stand.submit(session)


async def test_a_restore_to_a_point_in_time_has_its_whole_feed_and_the_anchor_names_what_was_lost(
    cluster: Cluster,
    shared_postgres: SharedPostgres,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    old = cluster.server
    passwords = {role: old.password_of(role_name(role)) for role in SERVICE_ROLES["agent"]}
    await migrate(old.superuser_dsn, "agent", passwords=passwords)
    worker = await create_pool(dsn(old, old, "worker"), size=2)
    feeding = await create_pool(dsn(old, old, "projector"), size=3)
    anchor = ["audit", "--anchor", str(tmp_path / "heads"), "--key", str(tmp_path / "key")]
    async with postgres_stand(dsn(old, old, "worker"), worker) as stand, running(feeding, Lines(), batch=4):
        sessions = [await stand.create() for _ in range(3)]
        await submit(stand, sessions, 2)
        await cluster.base_backup(cluster.place / "backup")
        await submit(stand, sessions, 1)
        await caught_up(feeding, "lines")
        await submit(stand, sessions, 1)
        admin = await asyncpg.connect(old.superuser_dsn)
        await admin.execute("SELECT pg_create_restore_point($1)", POINT)
        await admin.close()
        # What comes now is lost: events of an old session, a session, the places of projections.
        await submit(stand, sessions[:1], 2)
        lost = await stand.create()
        await caught_up(feeding, "lines")
        monkeypatch.setenv("TURNLOG_POSTGRES_PROJECTOR", dsn(old, old, "projector"))
        assert await asyncio.to_thread(run, anchor) == 0
    await worker.close()
    await feeding.close()
    await cluster.lost()

    new = await asyncio.to_thread(cluster.restored, shared_postgres, cluster.place / "backup")
    try:
        await new.start()
        admin_dsn = old.superuser_dsn.replace(f":{old.port}/", f":{new.port}/")

        async def promoted() -> bool:
            admin = await asyncpg.connect(admin_dsn)
            try:
                return (await admin.fetchval("SELECT pg_is_in_recovery()")) is False
            finally:
                await admin.close()

        await eventually(promoted, "the point is reached", timeout=60)
        monkeypatch.setenv("TURNLOG_POSTGRES_ADMIN", admin_dsn)
        capsys.readouterr()
        assert await asyncio.to_thread(run, ["restore-stamp"]) == 0
        assert capsys.readouterr().out == "the feed is in order; the epoch is 2\n"
        monkeypatch.setenv("TURNLOG_POSTGRES_PROJECTOR", dsn(new, old, "projector"))
        assert await asyncio.to_thread(run, anchor) == 1
        said = capsys.readouterr().out
        assert [line.split()[:3] for line in said.splitlines() if "was signed here" in line] == [
            [sessions[0], "7", "anchor:"],
            [lost, "1", "anchor:"],
        ]
        assert said.endswith("3 sessions, 15 events: 2 findings\n")

        worker = await create_pool(dsn(new, old, "worker"), size=2)
        feeding = await create_pool(dsn(new, old, "projector"), size=3)
        assert await sequences(feeding) == {session: [1, 2, 3, 4, 5] for session in sessions}
        async with postgres_stand(dsn(new, old, "worker"), worker) as stand:
            assert await PostgresReadModels(worker).epoch() == 2
            await submit(stand, sessions, 1)
            async with running(feeding, Lines(), batch=4):
                await caught_up(feeding, "lines")
        assert await sequences(feeding) == {session: [1, 2, 3, 4, 5, 6] for session in sessions}
        rows = await feeding.fetch("SELECT session_id::text AS session_id, sequence FROM feed.lines ORDER BY line")
        for session in sessions:
            assert [row["sequence"] for row in rows if row["session_id"] == session] == [1, 2, 3, 4, 5, 6]
        await worker.close()
        await feeding.close()
    finally:
        await new.kill()
