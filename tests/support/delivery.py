"""Gateways with real streams: real PostgreSQL, real agent service over HTTP, real NATS.

A test writes what a worker would write, by commands of its own, so that it decides what is committed when.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from collections.abc import Sequence as Many
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, Literal

import msgspec

from domain import commands, replies
from domain.commands import Command
from domain.errors import Rejection
from domain.events.base import Event
from domain.events.envelope import Draft
from domain.events.item import ItemCompleted, ItemFrames, RuntimeEvent
from domain.ids import CommandKey, Fence, Ordinal, SessionId, TurnId, WorkerId
from domain.parts import TextPart
from infra.embedded import EmbeddedNats
from infra.nats.connection import BrokerConnection
from infra.nats.live import open_live_reader
from infra.nats.notifier import NatsNotifier, open_notifier
from infra.pipeline.pipeline import Pipeline
from infra.postgres.catalogue import AgentEntry, PostgresCatalogue
from infra.postgres.workers import PostgresWorkers
from infra.settings import Settings
from infra.system import SystemIds
from services.agent.app import create_app as create_agent_app
from services.gateway.agent_client import AgentClient, Heads, ReplayPage
from services.gateway.app import create_app as create_gateway_app
from services.gateway.auth import Authenticator
from services.gateway.deps import GatewayDeps
from services.gateway.lookups import Lookups
from services.gateway.main import SessionSubscriber, user_tokens
from services.gateway.open_items import StoredOpenItems
from services.gateway.sse.hub import Hub
from services.gateway.sse.limits import Limits
from services.gateway.sse.ports import Agent, Listener, Subscriber, Subscription
from services.wiring import open_nats, open_pipeline, open_pool, open_publisher
from tests.support.client import Client
from tests.support.databases import Databases
from tests.support.gateways import AGENT, Served, agent_deps, gateway_deps, settings_for, user_token

Hook = Callable[[str], Awaitable[None]]


async def _nothing(_: str) -> None:
    pass


class HookedAgent:
    """The agent service as a hub sees it. `hook` is called with "before page", "after heads" …, and may raise."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.hook: Hook = _nothing

    async def page(
        self, session_id: str, after: int, form: Literal["sse", "json"] = "sse", limit: int | None = None
    ) -> ReplayPage:
        await self.hook("before page")
        page = await self._agent.page(session_id, after, form, limit)
        await self.hook("after page")
        assert isinstance(page, ReplayPage)
        return page

    async def heads(self, session_ids: Many[str]) -> Heads:
        await self.hook("before heads")
        heads = await self._agent.heads(session_ids)
        await self.hook("after heads")
        assert isinstance(heads, Heads)
        return heads


class HookedSubscriber:
    """The same for the broker: "before subscribe", "after subscribe"."""

    def __init__(self, subscriber: Subscriber) -> None:
        self._subscriber = subscriber
        self.hook: Hook = _nothing

    async def subscribe(self, session_id: str, listener: Listener) -> Subscription:
        await self.hook("before subscribe")
        subscription = await self._subscriber.subscribe(session_id, listener)
        await self.hook("after subscribe")
        return subscription


class Writer:
    """A session and the turn that a test plays the worker of."""

    def __init__(self, pipeline: Pipeline, workers: PostgresWorkers, session_id: str) -> None:
        self.session = SessionId(session_id)
        self._pipeline = pipeline
        self._workers = workers
        self._ids = SystemIds()
        self._claim: replies.ClaimedTurn | None = None
        self._ordinal = 0
        self._frame = 0

    async def submit(self, text: str = "hello") -> str:
        """Queue a turn."""
        turn_id = TurnId(self._ids.uuid7())
        await self._run(
            commands.SubmitTurn(session_id=self.session, key=self._key(), turn_id=turn_id, input=[TextPart(text)])
        )
        return turn_id

    async def start(self) -> str:
        """Submit a turn and claim it."""
        await self.submit()
        worker_id = WorkerId(self._ids.uuid7())
        await self._workers.heartbeat(worker_id, [])
        reply = await self._run(
            commands.ClaimTurn(session_id=self.session, key=self._key(), worker_id=worker_id), replies.ClaimReply
        )
        claim: replies.ClaimedTurn | None = reply.claim
        assert claim is not None
        self._claim, self._ordinal, self._frame = claim, 0, claim.frame_base
        return claim.turn_id

    async def append(self, count: int = 1, pad: int = 0) -> None:
        """Commit that many events of the running turn, in one transaction."""
        await self.record(*(RuntimeEvent(**self._numbers(), name="step", payload="x" * pad) for _ in range(count)))

    async def say(self, text: str, item_id: str | None = None) -> None:
        """Commit a completed text item."""
        numbers = self._numbers(3)
        runs, cuts = [(numbers["frame"] - 2, 3)], [len(text)]
        ids: dict[str, Any] = {"item_id": item_id or self._ids.uuid7(), "message_id": self._ids.uuid7()}
        await self.record(
            ItemCompleted(**numbers, **ids, kind="text", text=text, frames=ItemFrames(runs=runs, cuts=cuts))
        )

    async def record(self, *events: Event) -> None:
        """Raises what the command raises; nothing was written then."""
        drafts = [Draft(event, TurnId(self._running.turn_id)) for event in events]
        try:
            await self._run(commands.RecordEvents(**self._fenced(), events=drafts))
        except Rejection:
            self._ordinal -= 1
            raise

    async def finish(self, outcome: Literal["completed", "interrupted"] = "completed") -> None:
        numbers = self._numbers()
        await self._run(commands.FinishTurn(**self._fenced(), **numbers, outcome=outcome, output="done"))
        self._claim = None

    def show(self, notifier: NatsNotifier, type_: str, item_id: str, **data: Any) -> None:
        """Publish a temporary frame of the running turn."""
        turn_id = self._running.turn_id
        said = {"item_id": item_id, "attempt": self.attempt, **data}
        frame = {"session_id": self.session, "type": type_, "turn_id": turn_id, "data": said}
        notifier.publish_live(self.session, item_id, msgspec.json.encode(frame))

    async def close(self) -> None:
        await self._run(commands.CloseSession(session_id=self.session, key=self._key()))

    @property
    def attempt(self) -> int:
        return self._running.attempt

    @property
    def claim(self) -> replies.ClaimedTurn:
        """Of the running turn."""
        return self._running

    def skip_to(self, frame: int) -> None:
        """Somebody else has taken the frame numbers up to there."""
        self._frame = frame

    @property
    def _running(self) -> replies.ClaimedTurn:
        assert self._claim is not None, "no turn was started"
        return self._claim

    def _numbers(self, frames: int = 1) -> dict[str, Any]:
        self._frame += frames
        return {"attempt": self._running.attempt, "frame": self._frame}

    def _fenced(self) -> dict[str, Any]:
        self._ordinal += 1
        claim = self._running
        return {
            "session_id": self.session,
            "key": self._key(),
            "turn_id": TurnId(claim.turn_id),
            "fence": Fence(claim.fence),
            "ordinal": Ordinal(self._ordinal),
        }

    def _key(self) -> CommandKey:
        return CommandKey(self._ids.uuid7())

    async def _run(self, command: Command, reply: Any = Any) -> Any:
        return msgspec.json.decode((await self._pipeline.execute(command)).reply, type=reply)


class Gateway:
    """One gateway of a stand."""

    def __init__(
        self,
        served: Served,
        deps: GatewayDeps,
        agent: HookedAgent,
        subscriber: HookedSubscriber,
        broker: BrokerConnection,
    ) -> None:
        self.url = served.url
        self.broker = broker
        self.deps = deps
        self.hub = deps.hub
        self.agent = agent
        self.subscriber = subscriber

    def hook(self, hook: Hook) -> None:
        """Called around every step of an attach."""
        self.agent.hook = self.subscriber.hook = hook


class DeliveryStand:
    """`gateways`: real ones; `notifier`: publishes what a worker would."""

    def __init__(
        self, settings: Settings, pipeline: Pipeline, notifier: NatsNotifier, workers: PostgresWorkers
    ) -> None:
        self.settings = settings
        self.notifier = notifier
        self.gateways: list[Gateway] = []
        self._pipeline = pipeline
        self._workers = workers
        self._clients: list[Client] = []

    def client(self, gateway: int = 0, user: str = "ann") -> Client:
        client = Client(self.gateways[gateway].url, user_token(user))
        self._clients.append(client)
        return client

    async def session(self, **fields: Any) -> Writer:
        """A new session of ann's."""
        return Writer(self._pipeline, self._workers, await self.client().create(AGENT, **fields))

    async def close(self) -> None:
        await asyncio.gather(*(client.close() for client in self._clients))


def broker_settings(nats: EmbeddedNats) -> dict[str, Any]:
    """Where and as whom the roles reach that server."""
    roles = ("gateway", "agent", "worker")
    return {"urls": [nats.url], **{f"{role}_password": nats.credentials(role)[1] for role in roles}}


@asynccontextmanager
async def delivery_stand(
    databases: Databases, nats: EmbeddedNats, *, gateways: int = 1, limits: Limits | None = None, **groups: Any
) -> AsyncIterator[DeliveryStand]:
    """Everything real, served until the block ends."""
    settings = await settings_for(databases, nats=broker_settings(nats), **groups)
    async with AsyncExitStack() as stack:
        broker, notifier = await stack.enter_async_context(open_publisher(settings, "agent"))
        await broker.connected()
        agent_pipeline = await stack.enter_async_context(open_pipeline(settings, "agent", notifier))
        broker, notifier = await stack.enter_async_context(open_publisher(settings, "worker"))
        await broker.connected()
        pipeline = await stack.enter_async_context(open_pipeline(settings, "worker", notifier))
        worker_pool = await stack.enter_async_context(open_pool(settings, "worker"))
        await PostgresCatalogue(worker_pool).announce([AgentEntry(AGENT, "Echo")])
        pool = await stack.enter_async_context(open_pool(settings, "agent"))
        agents = Served(create_agent_app(agent_deps(settings, agent_pipeline, pool)))
        await stack.enter_async_context(agents.running())
        stand = DeliveryStand(settings, pipeline, notifier, PostgresWorkers(worker_pool, 60.0))
        for _ in range(gateways):
            stand.gateways.append(await stack.enter_async_context(_gateway(settings, agents.url, limits)))
        try:
            yield stand
        finally:
            await stand.close()


@asynccontextmanager
async def _gateway(settings: Settings, agent_url: str, limits: Limits | None) -> AsyncIterator[Gateway]:
    async with (
        gateway_deps(settings, [agent_url]) as deps,
        open_nats(settings, "gateway") as broker,
        AgentClient([agent_url], settings.service_secret(), unavailable_seconds=2.0) as client,
    ):
        await broker.connected()
        agent, subscriber = HookedAgent(client), HookedSubscriber(SessionSubscriber(broker))
        async with (
            open_live_reader(broker) as reader,
            open_notifier(broker) as notifier,
            Hub(agent, subscriber, limits, StoredOpenItems(reader, client)) as hub,
        ):
            hub.revoked = deps.revocations.check
            lookups = Lookups(deps.registrations, hub.spawn)
            authenticator = Authenticator(deps.registrations, user_tokens(settings), deps.clock, deps.passes, lookups)
            deps = replace(deps, hub=hub, control=notifier.control, authenticator=authenticator)
            served = Served(create_gateway_app(deps))
            async with served.running():
                yield Gateway(served, deps, agent, subscriber, broker)
