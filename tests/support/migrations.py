"""What migrates a database of each kind; a test may put another callable in its place."""

from infra.embedded import EmbeddedPostgres
from infra.postgres.migrate import migrate
from infra.postgres.names import SERVICE_ROLES, DatabaseKind, role_name
from tests.support.databases import Migrate


async def _migrate(server: EmbeddedPostgres, database: str, kind: DatabaseKind) -> None:
    passwords = {role: server.password_of(role_name(role)) for role in SERVICE_ROLES[kind]}
    await migrate(server.superuser_dsn, kind, database=database, passwords=passwords)


async def agent(server: EmbeddedPostgres, database: str) -> None:
    """The agent database: event store, read models, roles."""
    await _migrate(server, database, "agent")


async def gateway(server: EmbeddedPostgres, database: str) -> None:
    """The gateway's own database: registrations."""
    await _migrate(server, database, "gateway")


MIGRATIONS: dict[str, Migrate] = {"agent": agent, "gateway": gateway}
