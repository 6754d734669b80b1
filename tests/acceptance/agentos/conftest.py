"""One cluster for all AgentOS tests that use no Agno objects."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.acceptance.agentos.caller import Caller
from tests.acceptance.agentos.served import SERVED
from tests.support.cluster import Cluster, Clusters, SharedNats
from tests.support.nursery import Nursery
from tests.support.servers import LoopThread, SharedPostgres


@pytest.fixture(scope="module")
def standing(
    shared_postgres: SharedPostgres, shared_broker: SharedNats, nursery: Nursery, pytestconfig: pytest.Config
) -> Iterator[Cluster]:
    version = str(pytestconfig.getoption("--pg")).split(",")[0]
    context = Clusters(shared_postgres, shared_broker, nursery).start(
        gateways=2, workers=2, serve=SERVED, version=version
    )
    thread = LoopThread()
    try:
        running = thread.run(context.__aenter__())
        try:
            yield running
        finally:
            thread.run(context.__aexit__(None, None, None))
    finally:
        thread.close()


@pytest.fixture
async def cluster(standing: Cluster) -> AsyncIterator[Cluster]:
    """Two gateways, two workers, mended after each test."""
    yield standing
    await standing.mend()


@pytest.fixture
async def a(cluster: Cluster) -> AsyncIterator[Caller]:
    """A caller of the first gateway."""
    async with Caller(cluster.gateways[0].url + "/agentos") as caller:
        yield caller


@pytest.fixture
async def b(cluster: Cluster) -> AsyncIterator[Caller]:
    """A caller of the second gateway."""
    async with Caller(cluster.gateways[1].url + "/agentos") as caller:
        yield caller
