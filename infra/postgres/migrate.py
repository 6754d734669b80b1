"""Forward-only numbered migrations: under a lock, with checksums, never downwards.

`sql/migrations/{agent,gateway}/NNNN_name.sql`; each file runs in a transaction of its own, together with the note that
it ran. Roles and databases are created where they are missing, so one admin URL is all that a new installation needs.
"""

import hashlib
import re
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable

import asyncpg
import msgspec

from domain.errors import TurnlogError
from infra.postgres.names import (
    DEFAULT_NAMESPACE,
    SERVICE_ROLES,
    DatabaseKind,
    Role,
    database_name,
    role_name,
)
from infra.postgres.sql import statements

_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")


class MigrationRefused(TurnlogError):
    """Nothing was changed by the migration that was refused; those before it stay."""

    code = "migration_refused"
    sentence = "Database {database} is not migrated: {reason}."


class Migration(msgspec.Struct, frozen=True):
    """One file. `checksum`: SHA-256 of its bytes."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> bytes:
        return hashlib.sha256(self.text.encode()).digest()


class MigrationReport(msgspec.Struct, frozen=True):
    """What was done: the numbers applied just now, and the version the database has."""

    database: str
    applied: list[int]
    version: int


def migrations(kind: DatabaseKind, directory: Traversable | None = None) -> list[Migration]:
    """The migrations of this release, numbered 1, 2, 3 … without a gap. Raises ValueError when they are not."""
    place = directory or files("infra.postgres") / "sql" / "migrations" / kind
    found = []
    for file in sorted(place.iterdir(), key=lambda f: f.name):
        match = _NAME.fullmatch(file.name)
        if match is not None:
            found.append(Migration(int(match[1]), match[2], file.read_text(encoding="utf-8")))
    if [m.number for m in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"migrations of {kind} are not numbered without a gap")
    return found


async def migrate(
    admin_dsn: str,
    kind: DatabaseKind,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    database: str | None = None,
    passwords: Mapping[Role, str] | None = None,
    directory: Traversable | None = None,
) -> MigrationReport:
    """Bring one database to this release; a second run changes nothing and two at once wait for each other.

    `admin_dsn`: a role that may create roles and databases, to any database of the server. `passwords`: roles that
    shall log in with these. `database` and `directory` replace the usual ones (tests). Raises MigrationRefused when the
    database is newer than this release or a file that ran has changed since.
    """
    name = database or database_name(kind, namespace)
    release = migrations(kind, directory)
    await _prepare_server(admin_dsn, kind, name, namespace, passwords or {})
    connection = await asyncpg.connect(admin_dsn, database=name)
    try:
        return await _apply(connection, kind, name, namespace, release)
    finally:
        await connection.close()


async def _run_made(connection: "asyncpg.Connection[asyncpg.Record]", name: str, *args: str) -> None:
    made = await connection.fetchval(statements("migrate")[name], *args)
    if made is not None:
        await connection.execute(made)


async def _prepare_server(
    admin_dsn: str, kind: DatabaseKind, database: str, namespace: str, passwords: Mapping[Role, str]
) -> None:
    connection = await asyncpg.connect(admin_dsn)
    try:
        # Roles are the server's, so two migrations (of the two databases, too) would trip over each other's.
        await connection.execute(statements("migrate")["lock"])
        for role in ("owner", *SERVICE_ROLES[kind]):
            await _run_made(connection, "create_role", role_name(role, namespace))
            if role in passwords:
                await _run_made(connection, "let_log_in", role_name(role, namespace), passwords[role])
        owner = role_name("owner", namespace)
        await _run_made(connection, "own_by_us", owner)
        await _run_made(connection, "create_database", database, owner)
        await _run_made(connection, "close_database", database)
        await _run_made(connection, "let_make_schemas", database, owner)
        for role in SERVICE_ROLES[kind]:
            await _run_made(connection, "open_database", database, role_name(role, namespace))
    finally:
        await connection.close()


async def _apply(
    connection: "asyncpg.Connection[asyncpg.Record]",
    kind: DatabaseKind,
    database: str,
    namespace: str,
    release: list[Migration],
) -> MigrationReport:
    sql = statements("migrate")
    await connection.execute(sql["lock"])
    await _run_made(connection, "let_create", role_name("owner", namespace))
    await _run_made(connection, "become_owner", role_name("owner", namespace))
    for role in SERVICE_ROLES[kind]:
        await connection.execute(sql["tell_role"], role, role_name(role, namespace))
        await _run_made(connection, "open_schema", role_name(role, namespace))
    await connection.execute(sql["create_list"])
    done = await connection.fetch(sql["applied"])
    _check(database, release, [(row["number"], row["name"], row["checksum"]) for row in done])
    applied = []
    for migration in release[len(done) :]:
        async with connection.transaction():
            await connection.execute(migration.text)
            await connection.execute(sql["note"], migration.number, migration.name, migration.checksum)
        applied.append(migration.number)
    return MigrationReport(database=database, applied=applied, version=len(release))


def _check(database: str, release: list[Migration], done: list[tuple[int, str, bytes]]) -> None:
    if len(done) > len(release):
        newest = done[-1]
        reason = (
            f"it has migration {newest[0]} ({newest[1]}), newer than this release's {len(release)}; upgrade Turnlog"
        )
        raise MigrationRefused(database=database, reason=reason)
    for migration, (number, name, checksum) in zip(release, done, strict=False):
        if (migration.number, migration.checksum) != (number, checksum):
            reason = f"migration {number} ({name}) ran with another text than this release has; restore that file"
            raise MigrationRefused(database=database, reason=reason)
