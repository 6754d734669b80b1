"""The test bank's rows on reconnecting, on real processes: whoever dies or forgets, every cursor gives the rest."""

import asyncio
import itertools
from contextlib import suppress
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.api import StreamInfo
from nats.js.errors import NotFoundError

from infra.nats.subjects import inbox_prefix, stream_names
from tests.support.client import Client, terminal
from tests.support.cluster import MORTAL, Cluster, Clusters
from tests.support.folding import fold, shown
from tests.support.sse import Stream, assert_gapless
from tests.support.waiting import Stopwatch, eventually


async def assert_whole(client: Client, session: str, *streams: Stream, first: int = 1) -> None:
    """O1: these streams have the log from `first` on, without a hole, a repeat or an inversion. O2: it folds to the
    messages."""
    log = await client.events(session)
    for stream in streams:
        await stream.sequence(len(log))
        assert_gapless(stream.ids, first)
        assert [frame.json for frame in stream.committed] == log[first - 1 :]
    assert fold(log) == shown(await client.messages(session))


async def status(client: Client, session: str) -> dict[str, Any]:
    found: dict[str, Any] = await client.json("GET", f"/v1/sessions/{session}/status")
    return found


async def idle(client: Client, session: str) -> None:
    """Wait until no turn is queued or active."""

    async def at_rest() -> bool:
        seen = await status(client, session)
        return seen["active_turn_id"] is None and seen["queued"] == 0

    await eventually(at_rest, "the session is idle")


async def attach_again_and_again(cluster: Cluster, attaches: int) -> None:
    clients = (cluster.client(0), cluster.client(1))
    session = await clients[0].create("tools")
    done = asyncio.Event()

    async def talk() -> None:
        while not done.is_set():
            await clients[0].run(session, "more")

    talking = asyncio.create_task(talk())
    numbers = itertools.count()

    async def attach(client: Client) -> None:
        while next(numbers) < attaches:
            after = (await status(client, session))["last_sequence"] // 2
            stream = await client.stream(session, after).opened()
            await stream.sequence(after + 1 + len(stream.frames))
            head = (await status(client, session))["last_sequence"]
            await stream.sequence(head)
            assert_gapless(stream.ids, after + 1)
            await stream.close()

    await asyncio.gather(*(attach(clients[number % 2]) for number in range(4)))
    done.set()
    await talking
    await assert_whole(clients[1], session, clients[1].stream(session, 0))


async def test_r01_r02_attach_while_events_are_written(cluster: Cluster) -> None:
    """agentscope#2124, hermes-webui#3371: what is written between subscribe and replay arrives, and arrives once. (The
    three gaps one by one: tests/streaming/test_delivery.py.)"""
    await attach_again_and_again(cluster, 40)


@pytest.mark.soak
async def test_r01_r02_a_thousand_attaches_while_events_are_written(cluster: Cluster) -> None:
    await attach_again_and_again(cluster, 1000)


async def test_r04_a_gateway_is_killed_and_the_other_goes_on(cluster: Cluster) -> None:
    """a2aproject/A2A#1635: what happens between disconnect and resume comes from the store."""
    a, b = cluster.client(0), cluster.client(1)
    session = await a.create("tools")
    await a.run(session, "one")
    stream = await a.stream(session, 0).opened()
    await stream.sequence(5)
    await cluster.gateways[0].kill()
    await stream.end()
    for number in range(4):
        await b.run(session, f"meanwhile {number}")
    last = stream.last_id
    rest = b.stream(session, last)
    await assert_whole(b, session, rest, first=last + 1)
    assert len(rest.ids) > 40


async def test_r04_r05_the_broker_forgot_everything(clusters: Clusters) -> None:
    """a2a-python#832, Claude-Code-Agent-Monitor#307: nobody listened, and the broker was wiped: all is in the store."""
    async with clusters.start(gateways=2, own_nats=1, serve=["tools=tests.support.agents:tools"]) as cluster:
        a, b = cluster.client(0), cluster.client(1)
        session = await a.create("tools")
        await a.submit(session, "nobody listens")
        await idle(a, session)
        before = b.stream(session, 4)
        await before.opened()
        await cluster.wipe_nats()
        await cluster.nats.start()
        await b.run(session, "and again")
        await assert_whole(a, session, a.stream(session, 0), b.stream(session, 0))
        await assert_whole(b, session, before, first=5)
        assert await cluster.check() == []


async def test_r10_resume_at_the_end_of_a_turn(cluster: Cluster) -> None:
    """aegra#552: at n-1 the terminal event comes within a second, at n the stream says at once that nothing runs."""
    a, b = cluster.client(0), cluster.client(1)
    session = await a.create("echo")
    await a.run(session, "hello")
    last = (await status(a, session))["last_sequence"]
    since = Stopwatch()
    assert (await b.stream(session, last - 1).event("turn.completed")).id == str(last)
    at_end = await b.stream(session, last).opened()
    assert since() < 1.0
    said = at_end.frames[0].json
    assert (said["chat_status"], said["active_turn_id"], said["last_sequence"]) == ("human", None, last)


async def test_r11_silence_longer_than_every_time_limit(clusters: Clusters, tmp_path: Path) -> None:
    """aegra#598: a turn says something, is silent past the lease, every broker stream's age and the gateway's
    comments, and goes on: the early part is still there."""
    settings = MORTAL | {"TURNLOG_GATEWAY_COMMENT_SECONDS": "0.2", "TURNLOG_GATEWAY_HEADS_SECONDS": "1"}
    async with clusters.start(serve=["hold=tests.support.agents:hold"], settings=settings) as cluster:
        client, go = cluster.client(), tmp_path / "go"
        session = await client.create("hold")
        stream = await client.stream(session, 0).opened()
        turn = (await client.submit(session, str(go)))["turn_id"]
        await stream.event("item.delta")
        expired = await age_out(cluster)
        assert expired > 0
        (row,) = await cluster.fetch("SELECT clock_timestamp() + interval '2.5 seconds' AS until")

        async def a_lease_later() -> bool:
            (now,) = await cluster.fetch("SELECT clock_timestamp() > $1 AS over", row["until"])
            return bool(now["over"])

        await eventually(a_lease_later, "the lease of 2 s has passed")
        assert stream.parser.comments > 3
        go.touch()
        await terminal(stream, turn)
        late = client.stream(session, 0)
        await assert_whole(client, session, stream, late)
        assert [frame.event for frame in late.committed][-1] == "turn.completed"


async def age_out(cluster: Cluster) -> int:
    """Give all streams an age of a fifth of a second, and wait until they are empty; how many messages they had."""
    user, password = cluster.nats.credentials("operator", namespace=cluster.namespace)
    inbox = inbox_prefix(cluster.namespace, "operator")
    broker = await nats.connect(cluster.nats.url, user=user, password=password, inbox_prefix=inbox.encode())
    try:
        streams = broker.jetstream()
        names, had = stream_names(cluster.namespace), 0
        for name in names:
            found = await eventually(lambda name=name: _stream(streams, name), f"{name} is made")  # type: ignore[misc]
            had += found.state.messages
            assert found is not None
            found.config.max_age = found.config.duplicate_window = 0.2
            await streams.update_stream(found.config)

        async def empty() -> bool:
            states = [(await streams.stream_info(name)).state for name in names]
            return sum(state.messages for state in states) == 0

        await eventually(empty, "the broker has forgotten everything")
        return had
    finally:
        await broker.close()


async def _stream(streams: JetStreamContext, name: str) -> StreamInfo | None:
    with suppress(NotFoundError):
        return await streams.stream_info(name)
    return None


async def test_r12_the_key_of_a_finished_turn_gives_the_whole_stream_again(cluster: Cluster) -> None:
    """deer-flow#5258: a repeat after the end finds the same turn, and its stream is the first one's, frame by frame."""
    a, b = cluster.client(0), cluster.client(1)
    session = await a.create("tools")
    first = await a.stream(session, 0).opened()
    reply = await a.submit(session, "x", key="once")
    await terminal(first, reply["turn_id"])
    again = await b.request("POST", f"/v1/sessions/{session}/turns", {"input": "x"}, Idempotency_Key="once")
    assert (again.status_code, again.json(), again.headers["Idempotency-Replayed"]) == (202, reply, "true")
    replayed = b.stream(session, reply["sequence"] - 1)
    await terminal(replayed, reply["turn_id"])
    assert replayed.committed == first.committed[reply["sequence"] - 1 :]


async def test_r14_a_stream_after_a_snapshot(cluster: Cluster) -> None:
    """centrifugo#446: the snapshot says its sequence; what comes after it, folded, is the next snapshot."""
    a, b = cluster.client(0), cluster.client(1)
    session = await a.create("tools")
    await a.run(session, "before")
    running = await a.submit(session, "between")
    snapshot = await a.json("GET", f"/v1/sessions/{session}/messages?limit=200")
    at = snapshot["as_of_sequence"]
    for number in range(3):
        await a.run(session, f"after {number}")
    stream = b.stream(session, at)
    await stream.sequence((await status(a, session))["last_sequence"])
    assert_gapless(stream.ids, at + 1)
    assert len(stream.ids) >= 20
    log = await a.events(session)
    assert shown(snapshot["items"]) == fold(log[:at])
    assert fold(log[:at] + [frame.json for frame in stream.committed]) == shown(await b.messages(session))
    assert running["turn_id"] in {message["turn_id"] for message in await b.messages(session)}
