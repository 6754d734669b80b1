"""Events are append-only for everybody, and each role may do what it needs and nothing more."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from infra.embedded import EmbeddedPostgres
from infra.postgres.migrate import migrate
from infra.postgres.names import SERVICE_ROLES, DatabaseKind, database_name, role_name
from infra.postgres.pool import create_pool
from tests.support.databases import Database
from tests.support.stand import postgres_stand

pytestmark = pytest.mark.every_postgres

CHANGES = ("UPDATE events SET type = 'x'", "DELETE FROM events", "TRUNCATE events")
NOBODYS = (
    "UPDATE store_meta SET epoch = 7",
    "UPDATE projection_generations SET version = 7",
    "DELETE FROM sessions",
    "DELETE FROM turns",
    "DELETE FROM messages",
    "DELETE FROM command_log",
    "ALTER TABLE events DISABLE TRIGGER ALL",
    "CREATE TABLE mine (a integer)",
    "DROP TABLE blobs",
    "DELETE FROM blobs",
    "UPDATE blob_chunks SET content = ''",
    "DELETE FROM blob_references",
    "INSERT INTO blob_references VALUES (gen_random_uuid(), '')",
)
OTHERS = {
    "turnlog_agent": (
        "INSERT INTO workers (worker_id, lease_seconds, expires_at) VALUES (gen_random_uuid(), 1, now())",
        "UPDATE agents SET name = 'x'",
        "INSERT INTO blobs (sha256, media_type, bytes, created_at) VALUES ('', '', 0, now())",
    ),
    "turnlog_worker": (
        "INSERT INTO blobs (sha256, media_type, bytes, created_at) VALUES ('', '', 0, now())",
        "SELECT collect_blobs(0, 1)",
    ),
    "turnlog_projector": (
        "INSERT INTO events (session_id, sequence) VALUES (gen_random_uuid(), 1)",
        "UPDATE turns SET status = 'queued'",
        "DELETE FROM claims",
    ),
}


@pytest.fixture
async def filled(database: Database) -> Database:
    dsn = await database.dsn_of("turnlog_worker")
    pool = await create_pool(dsn, size=2)
    async with postgres_stand(dsn, pool) as stand:
        await stand.submit(await stand.create())
    await pool.close()
    return database


async def _refused(dsn: str, error: type[asyncpg.PostgresError], *changes: str) -> None:
    connection = await asyncpg.connect(dsn)
    for change in changes:
        with pytest.raises(error):
            await connection.execute(change)
    await connection.close()


async def test_not_even_a_superuser_changes_events(filled: Database) -> None:
    await _refused(filled.dsn, asyncpg.RestrictViolationError, *CHANGES)


async def test_no_service_role_takes_anything_away_or_does_anothers_work(filled: Database) -> None:
    for role, more in OTHERS.items():
        await _refused(await filled.dsn_of(role), asyncpg.InsufficientPrivilegeError, *CHANGES, *NOBODYS, *more)


@pytest.fixture
async def installation(postgres: EmbeddedPostgres) -> AsyncIterator[str]:
    """Both databases of a namespace of this test's own, with all roles."""
    namespace = "lonely"
    kinds: tuple[DatabaseKind, ...] = ("agent", "gateway")
    for kind in kinds:
        roles = SERVICE_ROLES[kind]
        passwords = {role: postgres.password_of(role_name(role, namespace)) for role in roles}
        await migrate(postgres.superuser_dsn, kind, namespace=namespace, passwords=passwords)
    yield namespace
    connection = await asyncpg.connect(postgres.superuser_dsn)
    for kind in kinds:
        await connection.execute(f'DROP DATABASE "{database_name(kind, namespace)}" WITH (FORCE)')
    await connection.close()


async def test_each_role_connects_to_its_own_database_only(postgres: EmbeddedPostgres, installation: str) -> None:
    kinds: tuple[DatabaseKind, ...] = ("agent", "gateway")
    for kind in kinds:
        for owner in kinds:
            for role in SERVICE_ROLES[owner]:
                name = role_name(role, installation)
                dsn = postgres.dsn(name, postgres.password_of(name), database_name(kind, installation))
                if owner == kind:
                    await (await asyncpg.connect(dsn)).close()
                else:
                    with pytest.raises(asyncpg.InsufficientPrivilegeError):
                        await asyncpg.connect(dsn)


async def test_roles_of_one_namespace_do_not_enter_another(
    postgres: EmbeddedPostgres, installation: str, database: Database
) -> None:
    await migrate(postgres.superuser_dsn, "agent", passwords={"agent": postgres.password_of("turnlog_agent")})
    dsn = postgres.dsn("turnlog_agent", postgres.password_of("turnlog_agent"), database_name("agent", installation))
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await asyncpg.connect(dsn)
