"""nginx in front: what its defaults do to streams, and what they must not do (D01, D02, D04)."""

import asyncio
import itertools
import statistics
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from infra.embedded.place import free_port
from tests.support.client import Client
from tests.support.cluster import Cluster
from tests.support.cutting import cutting_proxy
from tests.support.places import server_directory
from tests.support.sse import assert_gapless
from tests.support.waiting import Stopwatch, eventually
from tests.system.browsing import Browser
from tests.system.judging import judging
from tests.system.proxying import certificate, edge, plain, proxying, shipped
from tests.system.tools import needs_chromium, needs_eventsource, needs_nginx, needs_openssl

pytestmark = [pytest.mark.system, needs_nginx, pytest.mark.asyncio(loop_scope="module")]

TIMEOUT = 3
"""Seconds of silence after which this nginx cuts; 60 by default, where the gateway speaks every 10."""


@pytest.fixture(scope="module")
def site_settings() -> dict[str, str]:
    return {"TURNLOG_GATEWAY_COMMENT_SECONDS": "0.5"}


@pytest.fixture
def directory() -> Iterator[Path]:
    with server_directory() as made:
        yield made


def ports(site: Cluster) -> list[int]:
    return [gateway.port or 0 for gateway in site.gateways]


@needs_eventsource
async def test_d01_a_tool_that_is_silent_for_three_time_outs_keeps_its_connection(
    site: Cluster, directory: Path
) -> None:
    """A plain proxy_pass; the comments between keep the connection, so nobody reconnects."""
    port = free_port()
    conf = plain(ports(site), port, f"proxy_read_timeout {TIMEOUT}s;", f"send_timeout {TIMEOUT}s;")
    async with proxying(directory, conf, port) as proxy:
        session = await site.client().create("silent_tool")
        async with judging([f"{proxy.url}/v1/sessions/{session}/events"]) as judge:
            await judge.opened()
            await site.client().submit(session, str(3 * TIMEOUT + 0.5))
            (verdict,) = await judge.verdicts()
        assert_gapless(verdict.ids)
        assert verdict.committed == await site.client().events(session)
        assert (verdict.opens, verdict.refusals) == (1, [])
        times = [one["at"] for one in verdict.heard if "sequence" in one["message"]]
        assert max(later - earlier for earlier, later in itertools.pairwise(times)) > 3000 * TIMEOUT


@needs_eventsource
async def test_d02_a_proxy_that_cuts_again_and_again_loses_nothing(site: Cluster, directory: Path) -> None:
    """Its configuration is loaded anew all the time, and each time the old connections are cut."""
    port = free_port()
    enough = directory / "enough"
    async with proxying(directory, plain(ports(site), port), port, cut_seconds=0.2) as proxy:
        session = await site.client().create("counting")
        async with judging([f"{proxy.url}/v1/sessions/{session}/events"] * 3) as judge:
            for number in range(1, 3):
                await judge.opened(number)
                if number == 1:
                    await site.client().submit(session, str(enough))
                await proxy.reload()
            await judge.opened(3)
            enough.touch()
            verdicts = await judge.verdicts()
    events = await site.client().events(session)
    for verdict in verdicts:
        assert_gapless(verdict.ids)
        assert verdict.committed == events
        assert verdict.opens >= 3
        assert verdict.folded == verdicts[0].folded


@pytest.mark.parametrize("conf", [plain, shipped])
async def test_d04_an_event_is_there_within_200_ms_of_its_commit(site: Cluster, directory: Path, conf: object) -> None:
    """Through nginx's defaults, which buffer, and through the configuration that we ship: the time of the commit is the
    database's."""
    port = free_port()
    written = plain(ports(site), port) if conf is plain else shipped(ports(site), port)
    async with proxying(directory, written, port) as proxy:
        client = Client(proxy.url)
        try:
            session = await client.create("echo")
            stream = client.stream(session, 0)
            await stream.first_committed()
            late: list[float] = []
            for _ in range(20):
                watch = Stopwatch()
                sequence = (await client.submit(session, "x"))["sequence"]
                await stream.sequence(sequence)
                waited, seen = watch(), time.time()
                (queued,) = [event.json for event in stream.committed if event.id == str(sequence)]
                late.append(min(waited, seen - datetime.fromisoformat(queued["created_at"]).timestamp()))
        finally:
            await client.close()
        assert statistics.median(late) < 0.2, late


@pytest.mark.parametrize("keyed", [True, False], ids=["with a key", "without a key"])
async def test_what_nginx_tries_again_at_another_gateway_is_one_turn(
    site: Cluster, directory: Path, keyed: bool
) -> None:
    """A gateway that goes away between the commit and its answer, behind the configuration that we ship."""
    port = free_port()
    async with cutting_proxy(site.gateways[0].url) as gateway:
        written = shipped([int(gateway.url.rpartition(":")[2]), site.gateways[1].port or 0], port)
        async with proxying(directory, written, port) as proxy:
            client = Client(proxy.url)
            try:
                session = await client.create("echo")
                gateway.lose(1, f"/v1/sessions/{session}/turns")
                # nginx asks the two in turn.
                for number in range(1, 4):
                    turn = await client.submit(session, "x", f"k{number}" if keyed else None)
                    assert turn["enqueue_sequence"] == number
            finally:
                await client.close()
        assert gateway.lost == 1


@needs_chromium
async def test_every_gateway_is_away_for_five_seconds_and_the_page_comes_back(
    browser: Browser, site: Cluster, directory: Path
) -> None:
    """nginx answers 502 meanwhile, at which EventSource gives up for good; the page makes a new one."""
    port = free_port()
    enough = directory / "enough"
    async with proxying(directory, shipped(ports(site), port), port) as proxy:
        session = await site.client().create("counting")
        tab = await browser.tab(f"{proxy.url}/#{session}")
        await tab.live()
        await tab.say(str(enough))
        await tab.shows(1, " 10 ")
        began = time.monotonic()
        await asyncio.gather(*(gateway.kill() for gateway in site.gateways))
        await tab.page.get_by_role("status").get_by_text("Connection lost").wait_for()
        # Typed while nobody is there.
        await tab.say(str(enough))

        async def long_enough() -> bool:
            return time.monotonic() - began > 5

        await eventually(long_enough, "five seconds of outage")
        shown = len((await tab.texts(1)).split())
        await asyncio.gather(*(gateway.start() for gateway in site.gateways))
        await site.ready(site.gateways)
        await tab.live()
        await tab.shows(1, f" {shown + 10} ")
        enough.touch()
        await tab.ended(2, "completed")
        client = site.client()
        found = [message for message in await client.messages(session) if message["role"] == "assistant"]
        said = ["".join(part["text"] for part in message["parts"]) for message in found]
        assert [await tab.texts(1), *([await tab.texts(2)] if len(said) > 1 else [])] == said
        assert all("|".join(said).startswith(state) for state in await tab.witnessed())
        assert len((await client.json("GET", f"/v1/sessions/{session}/turns"))["items"]) == 2


@needs_chromium
@needs_openssl
async def test_a_browser_opens_more_streams_than_six_where_the_edge_speaks_http2(
    browser: Browser, site: Cluster, directory: Path
) -> None:
    """Six connections to a host are all that a browser makes over HTTP/1.1; twelve viewers and a submit need more."""
    port = free_port()
    certificate(directory)
    async with proxying(directory, edge(ports(site), port, directory), port):
        session = await site.client().create("echo")
        tab = await browser.tab(f"https://127.0.0.1:{port}/#{session}", ignore_https_errors=True)
        await tab.live()
        opened = """session => Promise.all(Array.from({ length: 12 }, () => new Promise(resolve => {
            const source = new EventSource(`/v1/sessions/${session}/events`);
            source.addEventListener("turn.completed", event => resolve(event.lastEventId));
        })))"""
        heard = asyncio.create_task(tab.page.evaluate(opened, session))
        await tab.say("to all of them")
        await tab.ended(1, "completed")
        assert await heard == [str((await site.client().events(session))[-1]["sequence"])] * 12
        spoken = "performance.getEntriesByType('navigation')[0].nextHopProtocol"
        assert await tab.page.evaluate(spoken) == "h2"
