"""Fixtures of the acceptance tests: real processes over loopback."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.cluster import Cluster, Clusters, SharedNats, shared_nats
from tests.support.nursery import Nursery
from tests.support.servers import SharedPostgres
from tests.support.standing import StandingClusters


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[SharedNats]:
    """One nats-server for the run; each cluster has a namespace of its own on it."""
    with shared_nats() as shared:
        yield shared


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Forks the processes of all clusters."""
    made = Nursery()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def standing_clusters(
    shared_postgres: SharedPostgres, shared_broker: SharedNats, nursery: Nursery, pytestconfig: pytest.Config
) -> StandingClusters:
    """`with standing_clusters.start(gateways=2, …) as cluster`, for a module's own `standing`."""
    version = str(pytestconfig.getoption("--pg")).split(",")[0]
    return StandingClusters(Clusters(shared_postgres, shared_broker, nursery), version)


@pytest.fixture(scope="module")
def standing(standing_clusters: StandingClusters) -> Iterator[Cluster]:
    """Two of each role, for the tests of a module."""
    with standing_clusters.start(gateways=2, agents=2, workers=2, projectors=1) as running:
        yield running


@pytest.fixture
async def cluster(standing: Cluster) -> AsyncIterator[Cluster]:
    """The module's `standing`, all of it running; what the test has killed or frozen is mended after it."""
    yield standing
    await standing.mend()


@pytest.fixture
def clusters(shared_postgres: SharedPostgres, shared_broker: SharedNats, nursery: Nursery) -> Clusters:
    """`async with clusters.start(gateways=2, …) as cluster`."""
    return Clusters(shared_postgres, shared_broker, nursery)
