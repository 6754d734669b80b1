"""Fixtures that every test may use (a pytest plugin, loaded by tests/conftest.py).

`database` and `databases` are clones on a shared server; `nats` is a fresh nats-server, which starts in some 50 ms;
`own_postgres` is a server that a test may stop, kill and restart.
Tests marked `every_postgres` run once on each version of `--pg` (default 18,16); all others on the first one only.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from infra.embedded import EmbeddedNats, EmbeddedPostgres
from tests.support.databases import Database, Databases, Migrate
from tests.support.migrations import MIGRATIONS
from tests.support.places import server_directory, shared_directory
from tests.support.servers import INSTALLED, SharedPostgres


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--pg",
        default="18,16",
        help="PostgreSQL versions: the first for all tests, all for those marked every_postgres",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "postgres_version" in metafunc.fixturenames:
        versions = str(metafunc.config.getoption("--pg")).split(",")
        if metafunc.definition.get_closest_marker("every_postgres") is None:
            versions = versions[:1]
        metafunc.parametrize("postgres_version", versions, ids=[f"pg{version}" for version in versions])


@pytest.fixture(scope="session")
def shared_postgres() -> Iterator[SharedPostgres]:
    with shared_directory() as directory:
        servers = SharedPostgres(directory)
        try:
            yield servers
        finally:
            servers.close()


@pytest.fixture(scope="session")
def migrations() -> dict[str, Migrate]:
    """By kind of database; override it to give a test another schema."""
    return dict(MIGRATIONS)


@pytest.fixture(scope="session")
def templates() -> dict[str, set[str]]:
    """Names of the templates that exist, by server version."""
    return {}


@pytest.fixture
def postgres(shared_postgres: SharedPostgres, postgres_version: str) -> EmbeddedPostgres:
    """The shared server: not to be stopped by a test."""
    return shared_postgres.server(postgres_version)


@pytest.fixture
async def databases(
    postgres: EmbeddedPostgres,
    postgres_version: str,
    migrations: dict[str, Migrate],
    templates: dict[str, set[str]],
) -> AsyncIterator[Databases]:
    """`await databases.create(kind)`: as many fresh databases as the test wants."""
    made = Databases(postgres, migrations, templates.setdefault(postgres_version, set()))
    try:
        yield made
    finally:
        await made.drop_all()


@pytest.fixture
async def database(databases: Databases) -> Database:
    """A fresh, migrated agent database."""
    return await databases.create("agent")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory for servers of this test's own."""
    with server_directory() as directory:
        yield directory


@pytest.fixture
async def own_postgres(
    place: Path, shared_postgres: SharedPostgres, postgres_version: str
) -> AsyncIterator[EmbeddedPostgres]:
    """A running server of this test's own, to be stopped and killed at will."""
    await asyncio.to_thread(shared_postgres.copy_fresh_data, postgres_version, place / "postgres")
    server = EmbeddedPostgres(place / "postgres", version=postgres_version, binaries=INSTALLED.get(postgres_version))
    await server.start()
    try:
        yield server
    finally:
        await server.kill()


@pytest.fixture
async def nats(place: Path) -> AsyncIterator[EmbeddedNats]:
    """A running nats-server of this test's own, for the namespace `turnlog`."""
    server = EmbeddedNats(place / "nats")
    await server.start()
    try:
        yield server
    finally:
        await server.kill()
