"""The embedded nats-server: real processes, real permissions, killed and wiped."""

import asyncio
import os
import shutil
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import nats as client
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.api import StreamConfig, StreamInfo
from nats.js.errors import APIError

from infra.embedded import EmbeddedNats, ServerAlreadyRunning
from infra.embedded.nats_config import Cluster
from infra.embedded.place import free_port
from infra.nats.subjects import inbox_prefix
from tests.support.places import server_directory


@asynccontextmanager
async def connected(server: EmbeddedNats, role: str, namespace: str = "turnlog") -> AsyncIterator["Seen"]:
    user, password = server.credentials(role, namespace=namespace)
    refusals: asyncio.Queue[str] = asyncio.Queue(100)

    async def refused(error: Exception) -> None:
        refusals.put_nowait(str(error))

    connection = await client.connect(
        server.url,
        user=user,
        password=password,
        error_cb=refused,
        allow_reconnect=False,
        inbox_prefix=inbox_prefix(namespace, role),
    )
    try:
        yield Seen(connection, refusals)
    finally:
        await connection.close()


SENTINEL = "nobody.may.say.this"


class Seen:
    """A connection and what the server refused it."""

    def __init__(self, connection: Client, refusals: asyncio.Queue[str]) -> None:
        self.connection = connection
        self._refusals = refusals

    async def may_publish(self, subject: str) -> bool:
        await self.connection.publish(subject, b"")
        return await self._was_allowed(subject)

    async def may_subscribe(self, subject: str) -> bool:
        subscription = await self.connection.subscribe(subject)
        allowed = await self._was_allowed(subject)
        if allowed:
            await subscription.unsubscribe()
        return allowed

    async def _was_allowed(self, subject: str) -> bool:
        # The server answers in order, so when it has refused this one it has refused the one before, or allowed it.
        await self.connection.publish(SENTINEL, b"")
        refused: list[str] = []
        async with asyncio.timeout(5):
            while not refused or SENTINEL not in refused[-1]:
                refused.append(await self._refusals.get())
        assert all(subject.lower() in text.lower() for text in refused[:-1])
        return len(refused) == 1


PUBLISHES = {
    "turnlog.session.s.event": {"agent", "worker", "projector", "operator"},
    "turnlog.session.s.live.i": {"worker", "operator"},
    "turnlog.session.s.control": {"gateway", "agent", "operator"},
    "turnlog.wake.default": {"agent", "worker", "projector", "operator"},
    "turnlog.turn.t.signal": {"agent", "worker", "operator"},
    "turnlog.hooks": {"worker", "operator"},
    "$JS.API.DIRECT.GET.TURNLOG_LIVE": {"gateway", "operator"},
    "$JS.API.DIRECT.GET.TURNLOG_EVENTS": {"operator"},
    "$JS.API.STREAM.DELETE.TURNLOG_EVENTS": {"operator"},
    "$JS.API.STREAM.PURGE.TURNLOG_LIVE": {"agent", "worker", "projector", "operator"},
    "other.session.s.event": set(),
}
SUBSCRIBES = {
    "turnlog.session.*.>": {"gateway", "operator"},
    "turnlog.session.*.event": {"gateway", "agent", "projector", "operator"},
    "turnlog.wake.default": {"worker", "operator"},
    "turnlog.turn.t.signal": {"worker", "operator"},
    "other.session.s.event": set(),
    "_INBOX.>": set(),
    ">": set(),
}


@pytest.mark.parametrize("role", ["gateway", "agent", "worker", "projector", "operator"])
async def test_each_role_may_say_and_hear_its_own_and_nothing_else(nats: EmbeddedNats, role: str) -> None:
    async with connected(nats, role) as seen:
        said = {subject: await seen.may_publish(subject) for subject in PUBLISHES}
        heard = {subject: await seen.may_subscribe(subject) for subject in SUBSCRIBES}
    assert said == {subject: role in roles for subject, roles in PUBLISHES.items()}
    assert heard == {subject: role in roles for subject, roles in SUBSCRIBES.items()}


async def test_two_installations_share_a_server_and_do_not_hear_each_other(place: Path) -> None:
    server = EmbeddedNats(place / "nats", namespaces=("turnlog", "other"))
    await server.start()
    try:
        async with connected(server, "gateway", "other") as seen:
            assert await seen.may_subscribe("other.session.s.>")
            assert not await seen.may_subscribe("turnlog.session.s.>")
            assert not await seen.may_subscribe(f"{inbox_prefix('turnlog', 'gateway')}.>")
    finally:
        await server.stop()


async def test_streams_survive_stop_and_kill_and_a_wipe_is_a_new_beginning(nats: EmbeddedNats) -> None:
    port = nats.port
    async with connected(nats, "agent") as seen:
        stream = seen.connection.jetstream()
        await stream.add_stream(StreamConfig(name="TURNLOG_EVENTS", subjects=["turnlog.session.*.event"]))
        await stream.publish("turnlog.session.s.event", b"1")
    await nats.restart()
    await nats.kill()
    assert nats.pid is None
    await nats.start()
    assert nats.port == port
    async with connected(nats, "agent") as seen:
        info = await seen.connection.jetstream().stream_info("TURNLOG_EVENTS")
        assert info.state.messages == 1
    await nats.stop()
    shutil.rmtree(nats.store)
    await nats.start()
    async with connected(nats, "operator") as seen:
        assert [info.config.name for info in await seen.connection.jetstream().streams_info()] == []


async def test_a_message_of_two_megabytes_is_the_largest(nats: EmbeddedNats) -> None:
    async with connected(nats, "operator") as seen:
        assert seen.connection.max_payload == 2 * 1024 * 1024
        with pytest.raises(NoRespondersError):
            await seen.connection.request("turnlog.nobody", b"x" * (1024 * 1024 + 1), timeout=5)


async def test_a_wrong_password_is_refused(nats: EmbeddedNats) -> None:
    user, _ = nats.credentials("agent")
    with pytest.raises(Exception, match="Authorization"):
        await client.connect(nats.url, user=user, password="wrong", allow_reconnect=False, max_reconnect_attempts=0)


async def test_a_second_server_of_the_same_data_is_refused(nats: EmbeddedNats) -> None:
    with pytest.raises(ServerAlreadyRunning, match=f"process {os.getpid()}"):
        await EmbeddedNats(nats.log.parent).start()


async def test_its_configuration_is_readable_for_its_account_only(nats: EmbeddedNats) -> None:
    config = nats.log.parent / "server" / "nats.conf"
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert config.stat().st_uid == (nats.log.parent / "server").stat().st_uid != 0
    command = Path(f"/proc/{nats.pid}/cmdline").read_bytes()
    assert nats.credentials("agent")[1].encode() not in command


async def until_led(ask: Callable[[], Awaitable[StreamInfo]]) -> StreamInfo:
    """Ask until the cluster has a leader that answers; the next election is at most some seconds away."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await ask()
            except (APIError, NatsTimeoutError, NoRespondersError):
                await asyncio.sleep(0.05)


async def test_three_of_them_make_a_cluster() -> None:
    ports = [free_port() for _ in range(3)]
    routes = tuple(f"nats://127.0.0.1:{port}" for port in ports)
    with server_directory() as directory:
        members = [
            EmbeddedNats(
                directory / f"nats-{port}",
                cluster=Cluster("turnlog", port, routes),
                passwords=directory / "passwords.json",
            )
            for port in ports
        ]
        await asyncio.gather(*(member.start() for member in members))
        try:
            async with connected(members[0], "agent") as seen:
                stream = seen.connection.jetstream(timeout=1)
                config = StreamConfig(name="TURNLOG_EVENTS", subjects=["turnlog.session.*.event"], num_replicas=3)
                await until_led(lambda: stream.add_stream(config))
                await stream.publish("turnlog.session.s.event", b"1")
            await members[0].kill()
            async with connected(members[1], "agent") as seen:
                stream = seen.connection.jetstream(timeout=1)
                info = await until_led(lambda: stream.stream_info("TURNLOG_EVENTS"))
                assert info.state.messages == 1
        finally:
            await asyncio.gather(*(member.kill() for member in members))
