"""The stands that a contract runs on."""

from collections.abc import AsyncIterator

import pytest

from infra.postgres.pool import create_pool
from tests.support.databases import Database
from tests.support.stand import Stand, memory_stand, postgres_stand


class InMemory:
    """Runs a contract on the memory implementation."""

    @pytest.fixture
    async def stand(self) -> Stand:
        return memory_stand()


@pytest.mark.every_postgres
class OnPostgres:
    """Runs a contract on each PostgreSQL version, as the worker role, which may do least of those that append."""

    @pytest.fixture
    async def stand(self, database: Database) -> AsyncIterator[Stand]:
        dsn = await database.dsn_of("turnlog_worker")
        pool = await create_pool(dsn, size=3)
        async with postgres_stand(dsn, pool) as stand:
            yield stand
        await pool.close()
