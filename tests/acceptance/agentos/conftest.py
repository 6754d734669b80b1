"""One cluster for all AgentOS tests that use no Agno objects."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.acceptance.agentos.caller import Caller
from tests.acceptance.agentos.served import SERVED
from tests.support.cluster import Cluster, Clusters, SharedNats
from tests.support.nursery import Nursery
from tests.support.servers import SharedPostgres
from tests.support.standing import StandingClusters


@pytest.fixture(scope="package")
def standing(
    shared_postgres: SharedPostgres, shared_broker: SharedNats, nursery: Nursery, pytestconfig: pytest.Config
) -> Iterator[Cluster]:
    """Two gateways, two workers, for all modules of this folder that want no other one. A lease is short enough to wait
    for, and long enough for a busy machine."""
    version = str(pytestconfig.getoption("--pg")).split(",")[0]
    standing_clusters = StandingClusters(Clusters(shared_postgres, shared_broker, nursery), version)
    lease = {"TURNLOG_TURN_LEASE_SECONDS": "4", "TURNLOG_TURN_HEARTBEAT_SECONDS": "0.5"}
    with standing_clusters.start(gateways=2, workers=2, serve=SERVED, settings=lease) as running:
        yield running


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
