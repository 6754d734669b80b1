"""No stream is for ever: it ends politely, its client comes back where it was, and not all at once."""

import asyncio

from infra.settings import Settings
from infra.settings.groups import Gateway
from services.gateway.main import stream_limits
from services.gateway.sse.limits import Limits
from tests.support.sse import assert_gapless
from tests.support.streaming import FakeBroker, Log, stream_gateway
from tests.support.watchers import Watcher, until_all, watching_all

S = "session"


async def test_a_stream_ends_after_its_time_and_its_client_resumes() -> None:
    """While events go on; the sixty that were opened in one moment do not end in one."""
    log, broker = Log(), FakeBroker()
    log.append(S)
    limits = Limits(stream_seconds=0.5, recheck_seconds=0.02)
    async with stream_gateway(log, broker, limits) as gateway:
        watchers = [Watcher(S, [gateway.port], seconds_of=lambda _: 0.01) for _ in range(60)]
        async with watching_all(watchers):
            while not all(len(watcher.connections) > 3 for watcher in watchers):
                broker.event(S, log.append(S))
                await asyncio.sleep(0.002)
            last = log.last(S)
            await until_all(watchers, lambda watcher: watcher.last >= last, 10, "everything has come")
        for watcher in watchers:
            assert_gapless(watcher.ids)
            whole = [one for one in watcher.connections if one.ended is not None]
            assert {one.ended for one in whole} == {"draining"}
            assert all(one.lasted >= 0.3 for one in whole)
            assert all(1_000 <= (one.retry or 0) <= 3_000 for one in whole)
        firsts = sorted(watcher.connections[0].lasted for watcher in watchers)
        # Drawn from 0.1 s, of which chance leaves out a part.
        assert firsts[-1] - firsts[0] > 0.05
        async with asyncio.timeout(5):
            while gateway.hub.viewers or broker.subscriptions:
                await asyncio.sleep(0.01)


def test_it_is_half_an_hour_unless_the_setting_says_otherwise() -> None:
    assert stream_limits(Settings()).stream_seconds == 1_800
    assert stream_limits(Settings(gateway=Gateway(stream_seconds=7))).stream_seconds == 7
