"""A hub's end waits for nobody: not for a broker that never confirms, not for an agent service that never answers."""

import asyncio

import pytest

from services.gateway.sse.hub import Hub
from services.gateway.sse.limits import Limits
from tests.support.streaming import FakeBroker, Log, stream_gateway, watching

S = "session"


class Stuck:
    """A hook that never returns. `reached` once somebody waits in it."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("where", ["before subscribe", "after subscribe", "before heads", "before page"])
async def test_a_hub_ends_at_once_with_calls_in_flight(where: str) -> None:
    log, broker, stuck = Log(), FakeBroker(), Stuck()
    for _ in range(3):
        log.append(S)
    setattr(broker if "subscribe" in where else log, where.replace(" ", "_"), stuck)
    before = asyncio.all_tasks()
    loop = asyncio.get_running_loop()
    async with (
        stream_gateway(log, broker, Limits(subscribe_seconds=0.05)) as gateway,
        watching(gateway.url) as (client,),
    ):
        stream = client.stream(S, 0)
        await asyncio.wait_for(stuck.reached.wait(), 10)
        begun = loop.time()
    assert loop.time() - begun < 4.0
    await stream.end()
    async with asyncio.timeout(5):
        while asyncio.all_tasks() - before:
            await asyncio.sleep(0.01)
    if where == "after subscribe":
        # Whether the broker had it by then, nobody knows: the connection to it is closed next.
        assert gateway.hub.sessions == 0


async def test_a_hub_without_a_server_around_it_ends_at_once() -> None:
    log, broker, stuck = Log(), FakeBroker(), Stuck()
    log.append(S)
    log.before_page = broker.before_subscribe = log.before_heads = stuck
    async with asyncio.timeout(5):
        async with Hub(log, broker) as hub:
            with hub.feed(S) as (feed, _):
                page = feed.pages.ask(0)
                stand = asyncio.create_task(hub.inquiry.stand(S))
                await stuck.reached.wait()
                await asyncio.sleep(0)
        failed = await asyncio.gather(page, stand, return_exceptions=True)
    assert [type(one).__name__ for one in failed] == ["AgentUnavailable", "AgentUnavailable"]
