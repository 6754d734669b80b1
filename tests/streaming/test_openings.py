"""D10 (Flowise#5884, resumable-stream#30, mastra#24580): sessions are opened and closed for days, here in minutes, and
what the broker, the database and this process hold goes back to what it was."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import asyncpg
import httpx2
import psutil
import pytest

from infra.embedded import EmbeddedNats
from infra.embedded.place import reserve_port
from tests.support.databases import Databases
from tests.support.delivery import DeliveryStand, delivery_stand
from tests.support.gateways import AGENT
from tests.support.peers import raw_stream


class ToldNats(EmbeddedNats):
    """With the port on which nats-server tells what it holds."""

    told = 0

    def _configure(self) -> list[str]:
        with reserve_port() as reserved:
            self.told = reserved.getsockname()[1]
        return [*super()._configure(), "-m", str(self.told)]

    async def holds(self, http: httpx2.AsyncClient, what: str, name: str) -> int:
        return int((await http.get(f"http://127.0.0.1:{self.told}/{what}")).json()[name])


class Held(NamedTuple):
    """What is held on behalf of streams, by whom."""

    broker_subscriptions: int
    broker_consumers: int
    broker_connections: int
    database_connections: int
    subscriptions: int
    sessions: int
    tails: int
    tasks: int
    descriptors: int


@pytest.fixture
async def told_nats(place: Path) -> AsyncIterator[ToldNats]:
    server = ToldNats(place / "nats")
    await server.start()
    try:
        yield server
    finally:
        await server.kill()


async def opened_and_closed(databases: Databases, nats: ToldNats, sessions: int, cycles: int, at_once: int) -> None:
    async with delivery_stand(databases, nats) as stand, httpx2.AsyncClient() as http:
        gateway, ann = stand.gateways[0], stand.client()
        writer = await stand.session()
        made = [writer.session, *[await ann.create(AGENT) for _ in range(sessions - 1)]]
        token, port = ann.http.headers["Authorization"], int(gateway.url.rpartition(":")[2])
        loop = asyncio.get_running_loop()

        async def cycle(number: int) -> None:
            session = made[number % sessions]
            async with raw_stream(port, session, number % 2, authorization=token) as peer:
                got = b""
                while b"event: stream.open" not in got:
                    got += await asyncio.wait_for(loop.sock_recv(peer, 65536), 30)
                    assert got.startswith(b"HTTP/1.1 200"[: len(got)]), got

        async def burst(first: int, count: int) -> None:
            for begin in range(first, first + count, at_once):
                await asyncio.gather(*(cycle(number) for number in range(begin, min(begin + at_once, first + count))))

        async def at_rest() -> Held:
            """Once it no longer changes."""
            before = None
            async with asyncio.timeout(60):
                while True:
                    now = await held(stand, nats, http)
                    if now == before and not now.sessions:
                        return now
                    before = now
                    await asyncio.sleep(0.5)

        # Pools and kept connections grow to what so many at once need.
        await burst(0, 3 * at_once)
        await burst(0, 3 * at_once)
        base = await at_rest()
        most = 0
        for first in range(0, cycles, 20 * at_once):
            await burst(first, min(20 * at_once, cycles - first))
            most = max(most, await nats.holds(http, "varz", "subscriptions") - base.broker_subscriptions)
        after = await at_rest()
        print(f"\n{cycles} opened and closed, {sessions} sessions: {base} before, {after} after; {most} more meanwhile")
        assert all(now <= then for now, then in zip(after, base, strict=True)), (base, after)
        assert most <= at_once
        # Whoever watches now is served as ever.
        await writer.start()
        await ann.stream(writer.session, 0).sequence(3)


async def held(stand: DeliveryStand, nats: ToldNats, http: httpx2.AsyncClient) -> Held:
    gateway = stand.gateways[0]
    dsn = stand.settings.postgres.gateway
    assert dsn is not None
    connection = await asyncpg.connect(dsn.get_secret_value())
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    database = await connection.fetchval(count)
    await connection.close()
    return Held(
        await nats.holds(http, "varz", "subscriptions"),
        await nats.holds(http, "jsz", "consumers"),
        await nats.holds(http, "varz", "connections"),
        database,
        len(gateway.broker.client._subs),
        gateway.hub.sessions,
        gateway.hub.tails.used + gateway.hub.room.used,
        len(asyncio.all_tasks()),
        len(os.listdir("/proc/self/fd")) - kept_alive(int(gateway.url.rpartition(":")[2])),
    )


def kept_alive(gateway: int) -> int:
    """Both ends of connections from the gateway to the agent service, which are kept for half a minute."""
    tcp = psutil.Process().net_connections("tcp")
    others = {one.laddr.port for one in tcp if one.status == psutil.CONN_LISTEN} - {gateway}
    return sum(1 for one in tcp if one.raddr and (one.laddr.port in others or one.raddr.port in others))


@pytest.mark.alone
async def test_d10_what_streams_hold_is_given_back(databases: Databases, told_nats: ToldNats) -> None:
    await opened_and_closed(databases, told_nats, 20, 300, 20)


@pytest.mark.soak
@pytest.mark.timeout(3_500)
async def test_d10_a_hundred_thousand_opened_and_closed(databases: Databases, told_nats: ToldNats) -> None:
    await opened_and_closed(databases, told_nats, 2_000, 100_000, 50)
