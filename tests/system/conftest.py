"""Fixtures of the system tests: an installation and a browser for the tests of a module, on one event loop a module."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.acceptance.conftest import nursery, shared_broker
from tests.support.cluster import Cluster, Clusters, SharedNats
from tests.support.nursery import Nursery
from tests.support.servers import SharedPostgres
from tests.system.browsing import Browser, browsing

__all__ = ["nursery", "shared_broker"]

SERVED = (
    *(f"{name}=tests.support.agents:{name}" for name in ("echo", "slow", "hold", "tools", "broken")),
    *(f"{name}=tests.system.agents:{name}" for name in ("counting", "silent_tool")),
    "approver=tests.support.lifecycle_agents:approver",
)


@pytest.fixture(scope="module")
def site_settings() -> dict[str, str]:
    """Settings of the module's installation; a module may say otherwise."""
    return {}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    shared_postgres: SharedPostgres,
    shared_broker: SharedNats,
    nursery: Nursery,
    pytestconfig: pytest.Config,
    site_settings: dict[str, str],
) -> AsyncIterator[Cluster]:
    """Two gateways, an agent service and a worker; what a test kills, it starts again."""
    version = str(pytestconfig.getoption("--pg")).split(",")[0]
    made = Clusters(shared_postgres, shared_broker, nursery)
    async with made.start(gateways=2, serve=SERVED, settings=site_settings, version=version) as cluster:
        yield cluster


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    """One headless browser; each test opens tabs of its own person."""
    async with browsing() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def browser(chromium: Browser) -> AsyncIterator[Browser]:
    """The same, whose pages are closed after the test and must not have complained."""
    yield chromium
    complaints = await chromium.forget()
    assert complaints == []
