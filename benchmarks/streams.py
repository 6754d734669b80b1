"""Stand of the stream benchmarks: one gateway and one agent process on a real PostgreSQL and NATS of their own, and a
writer in this process in a worker's place.

The gateway is pinned to one core, everything else to the others, so that what is measured is what one core serves.
"""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from infra.nats.notifier import NatsNotifier
from infra.pipeline.pipeline import Pipeline
from infra.postgres.catalogue import AgentEntry, PostgresCatalogue
from infra.postgres.names import database_name, role_name
from infra.postgres.workers import PostgresWorkers
from infra.settings import Settings
from services.wiring import open_pipeline, open_pool, open_publisher
from tests.support.cluster import Cluster, Clusters, shared_nats
from tests.support.delivery import Writer
from tests.support.gateways import AGENT
from tests.support.nursery import Nursery
from tests.support.places import server_directory
from tests.support.processes import RoleProcess
from tests.support.servers import SharedPostgres

GATEWAY_CORE = 0


class NotHere(Exception):
    """This machine lacks what the benchmark needs; the message says what."""


@dataclass
class StreamStand:
    """`others`: the cores that are not the gateway's."""

    cluster: Cluster
    pipeline: Pipeline
    workers: PostgresWorkers
    notifier: NatsNotifier

    @property
    def gateway(self) -> RoleProcess:
        return self.cluster.gateways[0]

    async def session(self) -> Writer:
        """A fresh session whose turn runs."""
        writer = Writer(self.pipeline, self.workers, await self.cluster.client().create(AGENT))
        await writer.start()
        return writer


def other_cores() -> set[int]:
    """All but the gateway's. Raises NotHere on a machine with one core."""
    others = os.sched_getaffinity(0) - {GATEWAY_CORE}
    if not others:
        raise NotHere("two cores are needed: one for the gateway, one for those who read")
    return others


def tool(name: str) -> str:
    """Path of a program. Raises NotHere."""
    path = shutil.which(name)
    if path is None:
        raise NotHere(f"the program {name} is not installed (Debian: apt-get install {name})")
    return path


@asynccontextmanager
async def stream_stand(*, pinned: bool) -> AsyncIterator[StreamStand]:
    """Everything started, ready and, where wanted, pinned; ended with the block."""
    nursery = Nursery()
    with server_directory() as directory, shared_nats() as nats:
        postgres = SharedPostgres(directory)
        try:
            quiet = {"TURNLOG_LOG_LEVEL": "warning", "TURNLOG_POSTGRES_POOL_SIZE": "8"}
            async with Clusters(postgres, nats, nursery).start(workers=0, settings=quiet) as cluster:
                if pinned:
                    pin(cluster)
                async with _writing(cluster) as stand:
                    yield stand
        finally:
            postgres.close()
            nursery.close()


def pin(cluster: Cluster) -> None:
    """The gateway to its core, agent and this process with all they start from now on to the others."""
    os.sched_setaffinity(cluster.gateways[0].pid, {GATEWAY_CORE})
    others = other_cores()
    for pid in (0, *(process.pid for process in cluster.agents)):
        os.sched_setaffinity(pid, others)


@asynccontextmanager
async def _writing(cluster: Cluster) -> AsyncIterator[StreamStand]:
    name = role_name("worker", cluster.namespace)
    database = database_name("agent", cluster.namespace)
    password = cluster.nats.credentials("worker", namespace=cluster.namespace)[1]
    groups: dict[str, Any] = {
        "postgres": {"worker": cluster.postgres.dsn(name, cluster.postgres.password_of(name), database)},
        "nats": {"urls": [cluster.nats.url], "worker_password": password},
    }
    settings = Settings(namespace=cluster.namespace, **groups)
    async with (
        open_publisher(settings, "worker") as (broker, notifier),
        open_pipeline(settings, "worker", notifier) as pipeline,
        open_pool(settings, "worker", size=2) as pool,
    ):
        await broker.connected()
        await PostgresCatalogue(pool).announce([AgentEntry(AGENT, "Echo")])
        yield StreamStand(cluster, pipeline, PostgresWorkers(pool, 60.0), notifier)
