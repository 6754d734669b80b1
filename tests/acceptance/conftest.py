"""Fixtures of the acceptance tests: real processes over loopback."""

from collections.abc import Iterator

import pytest

from tests.support.cluster import Clusters, SharedNats, shared_nats
from tests.support.nursery import Nursery
from tests.support.servers import SharedPostgres


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


@pytest.fixture
def clusters(shared_postgres: SharedPostgres, shared_broker: SharedNats, nursery: Nursery) -> Clusters:
    """`async with clusters.start(gateways=2, …) as cluster`."""
    return Clusters(shared_postgres, shared_broker, nursery)
