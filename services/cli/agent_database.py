"""Where the commands that read the agent database themselves find it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import asyncpg

from domain.errors import StoreUnavailable
from infra.embedded import EmbeddedPostgres
from infra.postgres.names import database_name, role_name
from infra.settings import Settings, load
from services.cli.failures import CannotRun, one_line


def agent_database(
    settings: Settings | None = None, role: Literal["projector", "worker", "agent"] = "projector"
) -> str:
    """URL of the agent database for the projector role, which may read it, or another one: the setting, or that of the
    servers that `turnlog up` runs on the data directory. Raises CannotRun."""
    settings = settings or load()
    if getattr(settings.postgres, role) is not None:
        return settings.dsn(role)
    directory = settings.data.absolute() / "postgres"
    port = directory / "port"
    if not port.is_file():
        raise CannotRun(
            f"there is no installation in {settings.data}: run this where `turnlog up` runs, or set"
            f" TURNLOG_POSTGRES_{role.upper()} to the URL of the agent database"
        )
    server = EmbeddedPostgres(directory, version=settings.postgres.version)
    server.port = int(port.read_text())
    name = role_name(role, settings.namespace)
    return server.dsn(name, server.password_of(name), database_name("agent", settings.namespace))


@contextmanager
def database_in_use() -> Iterator[None]:
    """What the database refuses, or its going away in the middle, is one line. Raises CannotRun."""
    try:
        yield
    except (StoreUnavailable, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise CannotRun(f"the agent database cannot be read: {one_line(error)}") from error
