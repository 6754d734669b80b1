"""Real agent services and gateways in this process, on loopback sockets and a real PostgreSQL; no broker, no worker.

A test plays the worker by commands of its own, so that it decides when a turn starts and ends.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
from joserfc import jwt
from joserfc.jwk import OctKey
from pydantic import SecretStr

from domain import commands, replies
from domain.ids import CommandKey, Fence, Ordinal, SessionId, TurnId, WorkerId
from infra.memory.notifier import MemoryNotifier
from infra.pipeline.pipeline import Pipeline
from infra.postgres.blobs import PostgresBlobs
from infra.postgres.catalogue import AgentEntry, PostgresCatalogue
from infra.postgres.feed_reads import PostgresFeedReads
from infra.postgres.history import PostgresHistory
from infra.postgres.hook_runs import PostgresHookRuns
from infra.postgres.read_models import PostgresReadModels
from infra.postgres.registrations import PostgresRegistrations
from infra.postgres.store import PostgresEventStore
from infra.postgres.stream_passes import PostgresStreamPasses
from infra.postgres.workers import PostgresWorkers
from infra.settings import Settings
from infra.settings.groups import Agent, Jwt, Postgres
from infra.system import SystemClock, SystemIds
from infra.telemetry.metrics import Metrics
from services.agent.app import create_app as create_agent_app
from services.agent.deps import AgentDeps
from services.gateway.agent_client import AgentClient
from services.gateway.app import create_app as create_gateway_app
from services.gateway.auth import Authenticator
from services.gateway.deps import GatewayDeps
from services.gateway.main import user_tokens
from services.gateway.passes import StreamPasses
from services.gateway.rates import Rates
from services.gateway.revocations import Revocations
from services.gateway.sse.hub import Hub
from services.gateway.sse.peer import StreamProtocol
from services.lifecycle import Life, listen, serve
from services.wiring import open_pipeline, open_pool
from tests.support.client import Client
from tests.support.databases import Databases
from tests.support.streaming import FakeBroker

JWT_SECRET = "a secret of tests, thirty-two bytes or more"
SERVICE_SECRET = "what gateways and agents of tests share"
AGENT = "echo"


def user_token(user: str = "ann", *, expires: int | None = 4_102_444_800, key: str = JWT_SECRET, **claims: Any) -> str:
    """A user's JWT, good until 2100 unless the test says otherwise."""
    said = {"sub": user, **({} if expires is None else {"exp": expires}), **claims}
    return jwt.encode({"alg": "HS256"}, said, OctKey.import_key(key))


class Served:
    """An app on a loopback socket of its own."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.listener = listen("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Served"]:
        life = Life()
        served = asyncio.create_task(serve(self.app, self.listener, life, protocol=StreamProtocol))
        try:
            yield self
        finally:
            life.stop()
            await served


class HttpStand:
    """`agents[i]` and `gateways[i]` are URLs; `deps[i]` what gateway i works with."""

    def __init__(self, settings: Settings, pipeline: Pipeline, workers: PostgresWorkers) -> None:
        self.settings = settings
        self.pipeline = pipeline
        self.agents: list[str] = []
        self.gateways: list[str] = []
        self.deps: list[GatewayDeps] = []
        self.ids = SystemIds()
        self._workers = workers
        self._clients: list[Client] = []

    def client(self, gateway: int = 0, token: str | None = None) -> Client:
        """A client with that bearer token, ann's unless another is given."""
        client = Client(self.gateways[gateway], user_token() if token is None else token)
        self._clients.append(client)
        return client

    @asynccontextmanager
    async def gateway(self, agent_urls: list[str]) -> AsyncIterator[Client]:
        """One more gateway, which finds the agent service there; a client of it."""
        async with gateway_deps(self.settings, agent_urls) as deps, Served(create_gateway_app(deps)).running() as made:
            client = Client(made.url, user_token())
            try:
                yield client
            finally:
                await client.close()

    async def close(self) -> None:
        await asyncio.gather(*(client.close() for client in self._clients))

    async def claim(self, session_id: str) -> replies.ClaimedTurn:
        """Start the next turn, as a worker would."""
        worker_id = WorkerId(self.ids.uuid7())
        await self._workers.heartbeat(worker_id, [])
        command = commands.ClaimTurn(
            session_id=SessionId(session_id), key=CommandKey(self.ids.uuid7()), worker_id=worker_id
        )
        outcome = await self.pipeline.execute(command)
        claim = msgspec.json.decode(outcome.reply, type=replies.ClaimReply).claim
        assert claim is not None
        return claim

    async def finish(self, claim: replies.ClaimedTurn, **fields: Any) -> None:
        """End it, completed unless `fields` say otherwise."""
        said: dict[str, Any] = {"outcome": "completed", "output": "done", **fields}
        command = commands.FinishTurn(
            session_id=SessionId(claim.session_id),
            key=CommandKey(self.ids.uuid7()),
            turn_id=TurnId(claim.turn_id),
            fence=Fence(claim.fence),
            ordinal=Ordinal(1),
            attempt=claim.attempt,
            frame=claim.frame_base + 1,
            **said,
        )
        await self.pipeline.execute(command)


def agent_deps(settings: Settings, pipeline: Pipeline, pool: Any) -> AgentDeps:
    """As the agent's main makes them."""
    return AgentDeps(
        secret=settings.service_secret(),
        pipeline=pipeline,
        store=PostgresEventStore(pool),
        read_models=PostgresReadModels(pool),
        history=PostgresHistory(pool),
        catalogue=PostgresCatalogue(pool),
        feed_reads=PostgresFeedReads(pool),
        hook_runs=PostgresHookRuns(pool),
        blobs=PostgresBlobs(pool),
        clock=SystemClock(),
        metrics=Metrics(process=False),
        page_bytes=int(settings.limits.replay_page_bytes),
        attachment_bytes=int(settings.limits.attachment_bytes),
        command_seconds=settings.agent.request_seconds * 0.9,
    )


async def settings_for(databases: Databases, **groups: Any) -> Settings:
    """Settings over fresh databases. `groups`: fields by group, over what tests want."""
    agent, gateway = await databases.create("agent"), await databases.create("gateway")
    return Settings(
        auth=groups.pop("auth", "jwt"),
        postgres=Postgres(
            agent=SecretStr(await agent.dsn_of("turnlog_agent")),
            worker=SecretStr(await agent.dsn_of("turnlog_worker")),
            gateway=SecretStr(await gateway.dsn_of("turnlog_gateway")),
            pool_size=4,
        ),
        agent=Agent(**{"secret": SERVICE_SECRET, "unavailable_seconds": 5.0, **groups.pop("agent", {})}),
        jwt=Jwt(**{"secret": JWT_SECRET, **groups.pop("jwt", {})}),
        **groups,
    )


@asynccontextmanager
async def http_stand(
    databases: Databases, *, agents: int = 1, gateways: int = 1, agent_urls: list[str] | None = None, **groups: Any
) -> AsyncIterator[HttpStand]:
    """Everything served until the block ends. `agent_urls`: what gateways use in place of the agents' own URLs."""
    settings = await settings_for(databases, **groups)
    async with AsyncExitStack() as stack:
        worker_pool = await stack.enter_async_context(open_pool(settings, "worker"))
        await PostgresCatalogue(worker_pool).announce([AgentEntry(AGENT, "Echo")])
        pipelines = [
            await stack.enter_async_context(open_pipeline(settings, "agent", MemoryNotifier()))
            for _ in range(max(1, agents))
        ]
        stand = HttpStand(settings, pipelines[0], PostgresWorkers(worker_pool, 60.0))
        for pipeline in pipelines[:agents]:
            pool = await stack.enter_async_context(open_pool(settings, "agent"))
            served = Served(create_agent_app(agent_deps(settings, pipeline, pool)))
            await stack.enter_async_context(served.running())
            stand.agents.append(served.url)
        for _ in range(gateways):
            deps = await stack.enter_async_context(gateway_deps(settings, agent_urls or stand.agents))
            served = Served(create_gateway_app(deps))
            await stack.enter_async_context(served.running())
            stand.deps.append(deps)
            stand.gateways.append(served.url)
        try:
            yield stand
        finally:
            await stand.close()


@asynccontextmanager
async def gateway_deps(settings: Settings, agent_urls: list[str]) -> AsyncIterator[GatewayDeps]:
    """As the gateway's main makes them, but without a broker."""
    clock, metrics = SystemClock(), Metrics(process=False)
    client = AgentClient(
        agent_urls,
        settings.service_secret(),
        request_seconds=settings.agent.request_seconds,
        unavailable_seconds=settings.agent.unavailable_seconds,
        registry=metrics.registry,
    )
    async with open_pool(settings, "gateway") as pool, client as agent, Hub(agent, FakeBroker()) as hub:
        registrations = PostgresRegistrations(pool)
        passes = StreamPasses(
            PostgresStreamPasses(pool), settings.gateway.ticket_seconds, settings.gateway.token_seconds
        )
        revocations = Revocations(registrations, clock, settings.gateway.revocation_seconds)
        hub.revoked = revocations.check
        revoking = asyncio.create_task(revocations.run())
        yield GatewayDeps(
            settings=settings,
            agent=agent,
            registrations=registrations,
            authenticator=Authenticator(registrations, user_tokens(settings), clock, passes),
            passes=passes,
            revocations=revocations,
            hub=hub,
            rates=Rates(settings.gateway.starts_per_minute, clock),
            repeats=Rates(settings.gateway.starts_per_minute, clock),
            clock=clock,
            ids=SystemIds(),
            metrics=metrics,
            ready={"registrations": registrations.ping, "agent": agent.ready},
        )
        revoking.cancel()
