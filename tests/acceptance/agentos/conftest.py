"""One cluster for all AgentOS tests that use no Agno objects."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.acceptance.agentos.caller import Caller
from tests.acceptance.agentos.served import SERVED
from tests.support.cluster import Cluster
from tests.support.standing import StandingClusters


@pytest.fixture(scope="module")
def standing(standing_clusters: StandingClusters) -> Iterator[Cluster]:
    """Two gateways, two workers."""
    with standing_clusters.start(gateways=2, workers=2, serve=SERVED) as running:
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
