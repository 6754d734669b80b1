"""`turnlog restore-stamp`: the last step of a restore (docs/projections.md, "Backup and restore")."""

import asyncio
import sys

import asyncpg

from infra.embedded import EmbeddedPostgres
from infra.postgres.names import database_name
from infra.postgres.sql import statements
from infra.settings import Settings, load
from services.cli.agent_database import database_in_use
from services.cli.failures import FINE, CannotRun


def restore_stamp() -> int:
    """After a restore, before anything runs: give the feed its order again, and raise the epoch.

    A restored database is in a cluster that counts transactions from anew, so the feed would hold events back or put
    new ones before old ones. All events get one transaction id of this cluster, in the order that the feed had; readers
    of the feed go on where they were. The epoch tells every client to load its conversation again. Needs
    TURNLOG_POSTGRES_ADMIN, or runs beside the embedded server in its data directory.
    """
    with database_in_use():
        epoch = asyncio.run(_stamp(load()))
    sys.stdout.write(f"the feed is in order; the epoch is {epoch}\n")
    return FINE


async def _stamp(settings: Settings) -> int:
    database = database_name("agent", settings.namespace)
    connection = await asyncpg.connect(_admin(settings), database=database, timeout=5)
    try:
        others = await connection.fetchval(statements("erase")["others"])
        if others:
            raise CannotRun(f"{others} other connections use {database}: stop all processes of Turnlog first")
        epoch: int = await connection.fetchval(statements("erase")["stamp"], timeout=86_400)
        return epoch
    finally:
        await connection.close()


def _admin(settings: Settings) -> str:
    if settings.postgres.admin is not None:
        return settings.dsn("admin")
    directory = settings.data.absolute() / "postgres"
    if not (directory / "port").is_file():
        raise CannotRun(
            f"there is no installation in {settings.data}: run this where `turnlog up` runs, or set"
            " TURNLOG_POSTGRES_ADMIN to the URL of a role that may do everything"
        )
    server = EmbeddedPostgres(directory, version=settings.postgres.version)
    server.port = int((directory / "port").read_text())
    return server.superuser_dsn
