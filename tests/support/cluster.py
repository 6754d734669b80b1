"""The acceptance harness: real gateways, agents, workers and a projector over loopback, on a real PostgreSQL and NATS.

    async with clusters.start(gateways=2, agents=2, workers=2) as cluster:
        session = await cluster.client(0).create("echo")
        stream = cluster.client(1).stream(session, 0)

The servers are shared by the tests of a run, and each cluster is an installation of its own on them (namespace,
databases, roles, NATS users). A test that stops or kills a server asks for `own_servers=True`.
"""

import asyncio
import itertools
import json
import secrets
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import nats
from nats.js.errors import NotFoundError

from infra.embedded import EmbeddedNats, EmbeddedPostgres
from infra.embedded.nats_config import Cluster as Members
from infra.embedded.nats_permissions import ROLES as NATS_ROLES
from infra.embedded.nats_permissions import user_of
from infra.embedded.place import reserve_port
from infra.nats.subjects import inbox_prefix, stream_names
from infra.postgres.migrate import migrate
from infra.postgres.names import SERVICE_ROLES, DatabaseKind, database_name, role_name
from infra.settings import Role
from services.cli.site import ROLES, Site
from tests.support.agents import AGENTS
from tests.support.checker import Finding, check_database
from tests.support.client import Client
from tests.support.nursery import Nursery
from tests.support.places import server_directory, shared_directory
from tests.support.processes import RoleProcess
from tests.support.servers import INSTALLED, LoopThread, SharedPostgres
from tests.support.waiting import PATIENCE, eventually

_NAMESPACES = 100
_KINDS: tuple[DatabaseKind, ...] = ("agent", "gateway")

SHORT: dict[str, str] = {
    "TURNLOG_TURN_LEASE_SECONDS": "10",
    "TURNLOG_TURN_HEARTBEAT_SECONDS": "1",
    "TURNLOG_WORKER_POLL_SECONDS": "0.2",
    "TURNLOG_WORKER_DRAIN_SECONDS": "5",
    "TURNLOG_PROJECTOR_POLL_SECONDS": "0.1",
    "TURNLOG_POSTGRES_POOL_SIZE": "4",
    "TURNLOG_AUTH": "off",
    "TURNLOG_LOG_LEVEL": "info",
}
"""Settings of a cluster unless a test says otherwise. A busy machine makes nobody look dead."""

MORTAL: dict[str, str] = {"TURNLOG_TURN_LEASE_SECONDS": "2", "TURNLOG_TURN_HEARTBEAT_SECONDS": "0.5"}
"""For tests in which workers die: a lease is short enough to wait for."""


class SharedNats:
    """One nats-server for all clusters of a run; each takes a namespace that none had before."""

    def __init__(self, directory: Path) -> None:
        self._thread = LoopThread()
        self._free = (f"c{number}" for number in itertools.count())
        namespaces = [f"c{number}" for number in range(_NAMESPACES)]
        passwords = directory.parent / "nats-passwords.json"
        users = [user_of(namespace, role) for namespace in namespaces for role in NATS_ROLES]
        # All at once: the server keeps each new one by a write to the disk.
        passwords.write_text(json.dumps({user: f"p{secrets.token_hex(16)}" for user in users}))
        self.server = EmbeddedNats(directory, namespaces=namespaces, passwords=passwords)
        self._thread.run(self.server.start())

    def namespace(self) -> str:
        return next(self._free)

    def close(self) -> None:
        self._thread.run(self.server.stop())
        self._thread.close()


@dataclass
class Cluster:
    """One installation. `gateways[i]` and so on are its processes; `postgres` and `nats` its servers; `brokers` are
    `nats` and, in a cluster, the other members."""

    namespace: str
    postgres: EmbeddedPostgres
    brokers: tuple[EmbeddedNats, ...]
    directory: Path
    processes: list[RoleProcess] = field(default_factory=list)
    _clients: list[Client] = field(default_factory=list)
    _ports: list[socket.socket] = field(default_factory=list)

    def port(self) -> int:
        """One that is this cluster's until it is closed, also while the process that listens there is down."""
        self._ports.append(reserve_port())
        return int(self._ports[-1].getsockname()[1])

    @property
    def nats(self) -> EmbeddedNats:
        return self.brokers[0]

    def of(self, role: str) -> list[RoleProcess]:
        return [process for process in self.processes if process.role == role]

    @property
    def gateways(self) -> list[RoleProcess]:
        return self.of("gateway")

    @property
    def agents(self) -> list[RoleProcess]:
        return self.of("agent")

    @property
    def workers(self) -> list[RoleProcess]:
        return self.of("worker")

    @property
    def projectors(self) -> list[RoleProcess]:
        return self.of("projector")

    def client(self, gateway: int = 0, token: str | None = None) -> Client:
        """A new client of that gateway; closed with the cluster."""
        client = Client(self.gateways[gateway].url, token)
        self._clients.append(client)
        return client

    def dsn(self, kind: DatabaseKind = "agent") -> str:
        """As superuser, to that database."""
        return self.postgres.superuser_dsn.removesuffix("/postgres") + "/" + database_name(kind, self.namespace)

    @asynccontextmanager
    async def connection(self, kind: DatabaseKind = "agent") -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
        """An outsider's connection, as superuser."""
        connection = await asyncpg.connect(self.dsn(kind))
        try:
            yield connection
        finally:
            await connection.close()

    async def fetch(self, sql: str, *args: object) -> list[Any]:
        """Rows of the agent database."""
        async with self.connection() as connection:
            return list(await connection.fetch(sql, *args))

    async def check(self, *, all_terminal: bool = True) -> list[Finding]:
        """What the independent checker finds wrong in the whole log."""
        async with self.connection() as connection:
            return await check_database(connection, all_terminal=all_terminal)

    def logs(self) -> str:
        """Everything that all processes have written."""
        return "".join(f"--- {process.name}\n{process.text()}" for process in self.processes)

    async def ready(self, processes: Sequence[RoleProcess] | None = None, timeout: float = 2 * PATIENCE) -> None:
        """Wait until these (all) gateways and agents are ready and an agent is announced."""
        serving = [p for p in processes or self.processes if p.role in ("gateway", "agent")]
        async with httpx2.AsyncClient(timeout=5.0) as http:
            await asyncio.gather(*(self._ready(http, process, timeout) for process in serving))
            if processes is None and self.workers:
                announced = "SELECT agent_id FROM agents"
                await eventually(lambda: self.fetch(announced), "an agent is announced", timeout=timeout)

    async def wipe_nats(self) -> None:
        """Stop nats-server and remove all its streams; it stays down."""
        await self.nats.stop()
        await asyncio.to_thread(shutil.rmtree, self.nats.store, ignore_errors=True)

    async def mend(self) -> None:
        """Close the clients, thaw what is frozen, start again what has ended."""
        await self._close_clients()
        ended = [process for process in self.processes if not process.alive]
        for process in self.processes:
            process.thaw()
        await asyncio.gather(*(process.start() for process in ended))
        if ended:
            await self.ready()

    async def close(self) -> None:
        """End everything, at once."""
        await self._close_clients()
        await asyncio.gather(*(process.kill() for process in self.processes))
        for port in self._ports:
            port.close()
        self._ports.clear()

    async def _close_clients(self) -> None:
        clients, self._clients = self._clients, []
        await asyncio.gather(*(client.close() for client in clients))

    async def _ready(self, http: httpx2.AsyncClient, process: RoleProcess, timeout: float) -> None:
        async def answers() -> bool:
            if not process.alive:
                raise AssertionError(f"{process.name} ended ({process.returncode}):\n{process.text()[-3000:]}")
            with suppress(httpx2.TransportError):
                return (await http.get(process.url + "/readyz")).status_code == 200
            return False

        try:
            await eventually(answers, f"{process.name} is ready", timeout=timeout)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{process.text()[-3000:]}") from None


class Clusters:
    """Starts clusters for one test and ends them with it."""

    def __init__(self, postgres: SharedPostgres, nats: SharedNats, nursery: Nursery) -> None:
        self._nursery = nursery
        self._postgres = postgres
        self._nats = nats

    @asynccontextmanager
    async def start(
        self,
        *,
        gateways: int = 1,
        agents: int = 1,
        workers: int = 1,
        projectors: int = 0,
        serve: Sequence[str] = (),
        own_servers: bool = False,
        own_nats: int = 0,
        on: Cluster | None = None,
        settings: Mapping[str, str] | None = None,
        version: str = "18",
        behind: Sequence[str] = (),
        through: Callable[[str, str], str] = lambda _, dsn: dsn,
    ) -> AsyncIterator[Cluster]:
        """A running, ready cluster. `serve`: agents (all of tests.support.agents otherwise); `settings`: further
        TURNLOG_* variables; `on`: share the servers of that cluster, as another installation; `own_nats`:
        so many brokers of its own (three are a cluster with three replicas) on the shared PostgreSQL, which starts much
        sooner than `own_servers`; `through` gives the address by which the roles of `behind` reach PostgreSQL,
        of role and dsn."""
        with server_directory() as directory:
            servers = (
                self._with_own_nats(directory, own_nats, version)
                if own_nats
                else self._servers(directory, own_servers, on, version)
            )
            async with servers as (namespace, postgres, brokers):
                cluster = Cluster(namespace, postgres, brokers, directory)
                site = await _prepare(cluster, [f"http://127.0.0.1:{cluster.port()}" for _ in range(agents)])
                env = SHORT | {"TURNLOG_WORKER_AGENTS": ",".join(serve or _all_agents())} | dict(settings or {})
                self._add(cluster, site, env, gateways=gateways, workers=workers, projectors=projectors)
                for process in (one for one in cluster.processes if one.role in behind):
                    name = f"TURNLOG_POSTGRES_{process.role.upper()}"
                    process.env[name] = through(process.role, process.env[name])
                try:
                    await asyncio.gather(*(process.start() for process in cluster.processes))
                    await cluster.ready()
                    yield cluster
                finally:
                    await cluster.close()
                    if not own_servers:
                        await _drop(cluster)
                    if not own_servers and not own_nats:
                        await _forget(cluster)

    @asynccontextmanager
    async def _servers(
        self, directory: Path, own: bool, on: Cluster | None, version: str
    ) -> AsyncIterator[tuple[str, EmbeddedPostgres, tuple[EmbeddedNats, ...]]]:
        if not own:
            shared = on.postgres if on else self._postgres.server(version)
            yield self._nats.namespace(), shared, (self._nats.server,)
            return
        await asyncio.to_thread(self._postgres.copy_fresh_data, version, directory / "postgres")
        postgres = EmbeddedPostgres(directory / "postgres", version=version, binaries=INSTALLED.get(version))
        nats = EmbeddedNats(directory / "nats")
        try:
            await asyncio.gather(postgres.start(), nats.start())
            yield "turnlog", postgres, (nats,)
        finally:
            await postgres.kill()
            await nats.kill()

    @asynccontextmanager
    async def _with_own_nats(
        self, directory: Path, members: int, version: str
    ) -> AsyncIterator[tuple[str, EmbeddedPostgres, tuple[EmbeddedNats, ...]]]:
        namespace = self._nats.namespace()
        brokers = _brokers(directory, members, namespace)
        try:
            await asyncio.gather(*(broker.start() for broker in brokers))
            yield namespace, self._postgres.server(version), brokers
        finally:
            await asyncio.gather(*(broker.kill() for broker in brokers))

    def _add(
        self, cluster: Cluster, site: Site, env: dict[str, str], *, gateways: int, workers: int, projectors: int
    ) -> None:
        def add(role: Role, number: int, port: int | None = None) -> None:
            own = {} if port is None else {f"TURNLOG_{role.upper()}_PORT": str(port)}
            name = f"{role}-{number}"
            log = cluster.directory / f"{name}.log"
            process = RoleProcess(self._nursery, name, role, site.environment(role) | env | own, log, port)
            cluster.processes.append(process)

        for number, url in enumerate(site.agent_urls):
            add("agent", number, int(url.rpartition(":")[2]))
        for number in range(gateways):
            add("gateway", number, cluster.port())
        for number in range(workers):
            add("worker", number)
        for number in range(projectors):
            add("projector", number)


@contextmanager
def shared_nats() -> Iterator[SharedNats]:
    """For the session fixture."""
    with shared_directory() as directory:
        shared = SharedNats(directory / "nats")
        try:
            yield shared
        finally:
            shared.close()


async def _prepare(cluster: Cluster, agent_urls: list[str]) -> Site:
    dsns: dict[Role, str] = {}
    for kind in _KINDS:
        names = {role: role_name(role, cluster.namespace) for role in SERVICE_ROLES[kind]}
        passwords = {role: cluster.postgres.password_of(name) for role, name in names.items()}
        await migrate(cluster.postgres.superuser_dsn, kind, namespace=cluster.namespace, passwords=passwords)
        for role in ROLES:
            if role in names:
                database = database_name(kind, cluster.namespace)
                dsns[role] = cluster.postgres.dsn(names[role], passwords[role], database)
    return Site(
        namespace=cluster.namespace,
        dsns=dsns,
        nats_urls=tuple(broker.url for broker in cluster.brokers),
        nats_passwords={role: cluster.nats.credentials(role, namespace=cluster.namespace)[1] for role in ROLES},
        service_secret="a secret that gateways and agents of tests share",
        agent_urls=tuple(agent_urls),
    )


def _brokers(directory: Path, members: int, namespace: str) -> tuple[EmbeddedNats, ...]:
    if members == 1:
        return (EmbeddedNats(directory / "nats", namespaces=[namespace]),)
    held = [reserve_port() for _ in range(members)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    routes = tuple(f"nats://127.0.0.1:{port}" for port in ports)
    return tuple(
        EmbeddedNats(
            directory / f"nats-{port}",
            namespaces=[namespace],
            cluster=Members("turnlog", port, routes),
            passwords=directory / "passwords.json",
        )
        for port in ports
    )


async def _drop(cluster: Cluster) -> None:
    """Databases and roles of a cluster on shared servers; so much data of so many tests would slow the later ones."""
    connection = await asyncpg.connect(cluster.postgres.superuser_dsn)
    try:
        for kind in _KINDS:
            await connection.execute(f'DROP DATABASE IF EXISTS "{database_name(kind, cluster.namespace)}" WITH (FORCE)')
        for role in ("owner", *SERVICE_ROLES["agent"], *SERVICE_ROLES["gateway"]):
            await connection.execute(f'DROP ROLE IF EXISTS "{role_name(role, cluster.namespace)}"')
    finally:
        await connection.close()


async def _forget(cluster: Cluster) -> None:
    """Streams of a cluster on the shared broker: each reserves what it may grow to, and there is room for a few."""
    user, password = cluster.nats.credentials("operator", namespace=cluster.namespace)
    inbox = inbox_prefix(cluster.namespace, "operator").encode()
    broker = await nats.connect(cluster.nats.url, user=user, password=password, inbox_prefix=inbox)
    try:
        for name in stream_names(cluster.namespace):
            with suppress(NotFoundError):
                await broker.jetstream().delete_stream(name)
    finally:
        await broker.close()


def _all_agents() -> list[str]:
    return [f"{name}=tests.support.agents:{name}" for name in AGENTS]


async def streams_made(cluster: Cluster) -> None:
    """Wait until the broker has all streams of this installation: the roles make them after they are ready."""
    user, password = cluster.nats.credentials("operator", namespace=cluster.namespace)
    inbox = inbox_prefix(cluster.namespace, "operator")
    broker = await nats.connect(cluster.nats.url, user=user, password=password, inbox_prefix=inbox.encode())
    try:
        for name in stream_names(cluster.namespace):

            async def made(name: str = name) -> bool:
                with suppress(NotFoundError):
                    return bool(await broker.jetstream().stream_info(name))
                return False

            await eventually(made, f"{name} is made")
    finally:
        await broker.close()
