"""Migrations: forward only, once, the same for everybody."""

import asyncio
from pathlib import Path

import asyncpg
import pytest

from infra.embedded import EmbeddedPostgres
from infra.postgres.migrate import MigrationRefused, migrate, migrations
from tests.support.databases import Databases

pytestmark = pytest.mark.every_postgres


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A release with two small migrations."""
    (tmp_path / "0001_first.sql").write_text("CREATE TABLE first (a integer);")
    (tmp_path / "0002_second.sql").write_text("CREATE TABLE second (a integer); INSERT INTO first VALUES (1);")
    return tmp_path


async def test_the_second_run_changes_nothing(postgres: EmbeddedPostgres, databases: Databases, release: Path) -> None:
    name = (await databases.create(None)).name
    first = await migrate(postgres.superuser_dsn, "agent", database=name, directory=release)
    again = await migrate(postgres.superuser_dsn, "agent", database=name, directory=release)
    assert (first.applied, first.version) == ([1, 2], 2)
    assert (again.applied, again.version) == ([], 2)


async def test_many_at_once_apply_each_once(postgres: EmbeddedPostgres, databases: Databases, release: Path) -> None:
    name = (await databases.create(None)).name
    reports = await asyncio.gather(
        *[migrate(postgres.superuser_dsn, "agent", database=name, directory=release) for _ in range(5)]
    )
    assert sorted(number for report in reports for number in report.applied) == [1, 2]
    connection = await asyncpg.connect(postgres.superuser_dsn, database=name)
    assert await connection.fetchval("SELECT count(*) FROM first") == 1
    await connection.close()


async def test_a_file_that_changed_after_it_ran_is_refused(
    postgres: EmbeddedPostgres, databases: Databases, release: Path
) -> None:
    name = (await databases.create(None)).name
    await migrate(postgres.superuser_dsn, "agent", database=name, directory=release)
    (release / "0001_first.sql").write_text("CREATE TABLE first (a bigint);")
    with pytest.raises(MigrationRefused, match="migration 1 \\(first\\) ran with another text"):
        await migrate(postgres.superuser_dsn, "agent", database=name, directory=release)


async def test_a_database_newer_than_the_release_is_refused(
    postgres: EmbeddedPostgres, databases: Databases, release: Path
) -> None:
    name = (await databases.create(None)).name
    await migrate(postgres.superuser_dsn, "agent", database=name, directory=release)
    (release / "0002_second.sql").unlink()
    with pytest.raises(MigrationRefused, match="newer than this release"):
        await migrate(postgres.superuser_dsn, "agent", database=name, directory=release)


async def test_a_migration_that_fails_leaves_nothing_and_those_before_it(
    postgres: EmbeddedPostgres, databases: Databases, release: Path
) -> None:
    name = (await databases.create(None)).name
    (release / "0002_second.sql").write_text("CREATE TABLE second (a integer); SELECT 1 / 0;")
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(postgres.superuser_dsn, "agent", database=name, directory=release)
    connection = await asyncpg.connect(postgres.superuser_dsn, database=name)
    assert await connection.fetchval("SELECT to_regclass('first') IS NOT NULL AND to_regclass('second') IS NULL")
    await connection.close()
    (release / "0002_second.sql").write_text("CREATE TABLE second (a integer);")
    assert (await migrate(postgres.superuser_dsn, "agent", database=name, directory=release)).applied == [2]


def test_a_gap_in_the_numbers_is_refused(release: Path) -> None:
    (release / "0004_fourth.sql").write_text("SELECT 1;")
    with pytest.raises(ValueError, match="without a gap"):
        migrations("agent", release)


async def test_an_admin_that_is_no_superuser_is_enough(postgres: EmbeddedPostgres, databases: Databases) -> None:
    """Managed servers give no superuser: CREATEROLE and CREATEDB must do."""
    connection = await asyncpg.connect(postgres.superuser_dsn)
    await connection.execute("CREATE ROLE landlord LOGIN CREATEROLE CREATEDB PASSWORD 'landlord'")
    dsn = postgres.dsn("landlord", "landlord", "postgres")
    try:
        report = await migrate(dsn, "agent", namespace="leased")
        assert report.applied == list(range(1, report.version + 1))
        assert (await migrate(dsn, "agent", namespace="leased")).applied == []
    finally:
        await connection.execute('DROP DATABASE IF EXISTS "leased_turnlog" WITH (FORCE)')
        for role in ("owner", "agent", "worker", "projector"):
            await connection.execute(f'DROP ROLE IF EXISTS "leased_turnlog_{role}"')
        await connection.execute("DROP ROLE landlord")
        await connection.close()
