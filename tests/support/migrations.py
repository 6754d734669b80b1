"""What migrates an empty database of each kind; a test may put another callable in its place."""

from importlib import import_module

from tests.support.databases import Migrate


async def agent(dsn: str) -> None:
    """The agent database: event store, read models, roles."""
    await import_module("infra.postgres.migrate").migrate(dsn)


async def gateway(dsn: str) -> None:
    """The gateway's own database: registrations."""
    await import_module("services.gateway.migrate").migrate(dsn)


MIGRATIONS: dict[str, Migrate] = {"agent": agent, "gateway": gateway}
