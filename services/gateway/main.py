"""The gateway's process: `run` serves until SIGTERM or SIGINT, then lets its streams go."""

import asyncio

import structlog

from domain.errors import AgentUnavailable, TurnlogError
from domain.ids import SessionId
from infra.nats.connection import BrokerConnection
from infra.nats.live import open_live_reader
from infra.nats.notifier import open_notifier
from infra.nats.subscriber import NatsSubscriber
from infra.postgres.registrations import PostgresRegistrations
from infra.postgres.stream_passes import PostgresStreamPasses
from infra.settings import SettingMissing, Settings
from infra.system import SystemClock, SystemIds
from infra.telemetry.metrics import Metrics
from infra.telemetry.traces import Traces
from services.addresses import bound
from services.gateway.agent_client import AgentClient
from services.gateway.app import create_app
from services.gateway.auth import Authenticator
from services.gateway.deps import GatewayDeps
from services.gateway.lookups import Lookups
from services.gateway.loopback import is_loopback
from services.gateway.measures import measure_streams
from services.gateway.open_items import StoredOpenItems
from services.gateway.passes import StreamPasses
from services.gateway.rates import Rates
from services.gateway.revocations import Revocations
from services.gateway.sse.hub import Hub
from services.gateway.sse.limits import Limits
from services.gateway.sse.peer import StreamProtocol
from services.gateway.sse.ports import Listener, Subscription
from services.gateway.sweeper import Sweeper
from services.gateway.user_tokens import UserTokens
from services.http_log import HttpLog
from services.lifecycle import Life, serve
from services.measuring import measure_broker, measure_pool
from services.tracing import traced
from services.wiring import open_nats, open_pool

log = structlog.get_logger("turnlog.gateway")


class OpenToAll(TurnlogError):
    """Authentication is off and others could reach this process."""

    code = "open_to_all"
    sentence = (
        "TURNLOG_AUTH=off is for one person on this machine, and {host} is no loopback address:"
        " set TURNLOG_JWT_SECRET and TURNLOG_AUTH=jwt, or listen on 127.0.0.1."
    )


class UnusableKeys(TurnlogError):
    """The JWKS file cannot be used."""

    code = "unusable_keys"
    sentence = "TURNLOG_JWT_JWKS_FILE: {file} holds no usable keys ({reason})."


class SessionSubscriber:
    """The hub knows sessions by plain text."""

    def __init__(self, broker: BrokerConnection, traces: Traces | None = None) -> None:
        self._subscriber = NatsSubscriber(broker, traces)

    async def subscribe(self, session_id: str, listener: Listener) -> Subscription:
        return await self._subscriber.subscribe(SessionId(session_id), listener)


def stream_limits(settings: Settings) -> Limits:
    """Bounds of delivery."""
    gateway = settings.gateway
    return Limits(
        viewers=gateway.viewers,
        viewer_buffer_bytes=int(gateway.viewer_buffer_bytes),
        tails_bytes=int(gateway.tails_bytes),
        comment_seconds=gateway.comment_seconds,
        heads_seconds=gateway.heads_seconds,
        hold_seconds=gateway.hold_seconds,
        recheck_seconds=gateway.recheck_seconds,
        attach_seconds=gateway.attach_seconds,
        stream_seconds=gateway.stream_seconds,
        linger_seconds=gateway.user_timeout_seconds,
    )


def user_tokens(settings: Settings) -> UserTokens | None:
    """What reads users' tokens, None where authentication is off. Raises OpenToAll, SettingMissing."""
    if settings.auth == "off":
        if not is_loopback(settings.gateway.host):
            raise OpenToAll(host=settings.gateway.host)
        return None
    if settings.jwt.secret is None and settings.jwt.jwks_file is None:
        raise SettingMissing(
            variable="TURNLOG_JWT_SECRET (or TURNLOG_JWT_JWKS_FILE)",
            purpose="the key that users' tokens are signed with",
        )
    try:
        return UserTokens(settings.jwt, SystemClock())
    except (OSError, ValueError) as error:
        raise UnusableKeys(file=str(settings.jwt.jwks_file), reason=str(error)) from error


async def run(settings: Settings) -> int:
    """Raises OpenToAll, SettingMissing, CannotListen, TracingMissing."""
    with traced(settings, "gateway") as traces:
        return await _run(settings, traces)


async def _run(settings: Settings, traces: Traces | None) -> int:
    clock, ids, life, metrics = SystemClock(), SystemIds(), Life(), Metrics()
    users = user_tokens(settings)
    client = AgentClient(
        settings.agent.urls,
        settings.service_secret(),
        request_seconds=settings.agent.request_seconds,
        unavailable_seconds=settings.agent.unavailable_seconds,
        registry=metrics.registry,
        traces=traces,
    )
    gateway = settings.gateway
    listener = bound(gateway.host, gateway.port, "TURNLOG_GATEWAY_PORT", gateway.user_timeout_seconds)
    async with (
        open_pool(settings, "gateway") as pool,
        open_nats(settings, "gateway") as broker,
        client as agent,
        open_notifier(broker) as notifier,
        open_live_reader(broker) as reader,
        Hub(agent, SessionSubscriber(broker, traces), stream_limits(settings), StoredOpenItems(reader, agent)) as hub,
        asyncio.TaskGroup() as tasks,
    ):
        registrations = PostgresRegistrations(pool)
        passes = StreamPasses(
            PostgresStreamPasses(pool), settings.gateway.ticket_seconds, settings.gateway.token_seconds
        )
        revocations = Revocations(registrations, clock, settings.gateway.revocation_seconds)
        hub.revoked = revocations.check
        measure_streams(hub, metrics.registry)
        measure_broker(broker, metrics.registry)
        measure_pool(pool, metrics.registry)

        async def nats() -> None:
            if not broker.is_connected:
                raise ConnectionError

        async def not_draining() -> None:
            if not life.ready:
                raise AgentUnavailable()

        deps = GatewayDeps(
            settings=settings,
            agent=agent,
            registrations=registrations,
            authenticator=Authenticator(registrations, users, clock, passes, Lookups(registrations, hub.spawn)),
            passes=passes,
            revocations=revocations,
            control=notifier.control,
            hub=hub,
            rates=Rates(settings.gateway.starts_per_minute, clock),
            repeats=Rates(settings.gateway.starts_per_minute, clock),
            clock=clock,
            ids=ids,
            metrics=metrics,
            ready={"registrations": registrations.ping, "agent": agent.ready, "nats": nats, "draining": not_draining},
        )
        sweeper = Sweeper(agent, registrations, ids, settings.gateway.starting_seconds)
        sweeping = tasks.create_task(sweeper.run(), name="sweeper")
        revoking = tasks.create_task(revocations.run(), name="revocations")
        app = HttpLog(create_app(deps), metrics.registry, log.info)
        try:
            with life.signals():
                log.info("gateway_listens", host=settings.gateway.host, port=listener.getsockname()[1])
                await serve(
                    app,
                    listener,
                    life,
                    drain=lambda: hub.drain(settings.gateway.drain_seconds),
                    protocol=StreamProtocol,
                )
        finally:
            sweeping.cancel()
            revoking.cancel()
    return 0
