"""Fixtures of the acceptance tests: real processes over loopback."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.cluster import Cluster, Clusters, SharedNats, shared_nats
from tests.support.nursery import Nursery
from tests.support.servers import LoopThread, SharedPostgres


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
def standing(
    shared_postgres: SharedPostgres, shared_broker: SharedNats, nursery: Nursery, pytestconfig: pytest.Config
) -> Iterator[Cluster]:
    """Two of each role, for the tests of a module."""
    version = str(pytestconfig.getoption("--pg")).split(",")[0]
    context = Clusters(shared_postgres, shared_broker, nursery).start(
        gateways=2, agents=2, workers=2, projectors=1, version=version
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
    """Two of each role, all of them running; what the test has killed or frozen is mended after it."""
    yield standing
    await standing.mend()


@pytest.fixture
def clusters(shared_postgres: SharedPostgres, shared_broker: SharedNats, nursery: Nursery) -> Clusters:
    """`async with clusters.start(gateways=2, …) as cluster`."""
    return Clusters(shared_postgres, shared_broker, nursery)
