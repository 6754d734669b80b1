"""Submit at one gateway, watch at another, and kill what there is to kill: the stream stays 1..n."""

import asyncio
from pathlib import Path

from tests.support.client import terminal
from tests.support.cluster import Cluster, Clusters
from tests.support.sse import Sse, assert_gapless
from tests.support.waiting import PATIENCE, Stopwatch


def text_of(frames: list[Sse]) -> str:
    """The deltas, put together."""
    return "".join(frame.json["data"]["text"] for frame in frames if frame.event == "item.delta")


async def test_posted_at_one_gateway_and_watched_at_the_other(cluster: Cluster) -> None:
    """Ids 1..n, no hole, no repeat, in order; the deltas are the message; the log says so too (invariants 5, 6, 10)."""
    a, b = cluster.client(0), cluster.client(1)
    session = await a.create("tools")
    stream = await b.stream(session, 0).opened()
    for text in ("one", "two"):
        turn = (await a.submit(session, text))["turn_id"]
        await terminal(stream, turn)
    assert_gapless(stream.ids)
    events = await a.events(session)
    assert [frame.json for frame in stream.committed] == events
    said = "".join(e["data"]["text"] for e in events if e["type"] == "item.completed" and e["data"]["kind"] == "text")
    assert text_of(stream.frames) == said == "Looking found it" * 2
    assert _said(await b.messages(session)) == ["one", "Looking ", "found it", "two", "Looking ", "found it"]
    assert await cluster.check() == []


async def test_cut_after_every_event_and_resumed_at_the_other_gateway(cluster: Cluster) -> None:
    """R04, R10: from every cursor the rest is the same, frame by frame, also at and after the end."""
    a, b = cluster.client(0), cluster.client(1)
    session = await a.create("tools")
    await a.run(session, "x")
    whole = a.stream(session, 0)
    head = (await a.json("GET", f"/v1/sessions/{session}/status"))["last_sequence"]
    await whole.sequence(head)
    for cut in range(head + 1):
        client = (b, a)[cut % 2]
        rest = await client.stream(session, cut).opened()
        if cut < head:
            await rest.sequence(head)
        assert rest.committed == whole.committed[cut:], cut
        assert rest.frames[0].event == "stream.open"
        assert rest.frames[0].id == str(cut)
        await rest.close()


async def test_cut_in_mid_turn_after_every_event(cluster: Cluster) -> None:
    """A viewer that reconnects to the other gateway after each event misses nothing and sees nothing twice."""
    a = cluster.client(0)
    clients = (a, cluster.client(1))
    session = await a.create("slow")
    turn = (await a.submit(session, "20 0.02"))["turn_id"]
    seen: list[Sse] = []
    for hop in range(100):
        stream = clients[hop % 2].stream(session, int(seen[-1].id or 0) if seen else 0)
        seen.append(await stream.first_committed())
        await stream.close()
        if seen[-1].event == "turn.completed":
            break
    assert_gapless([int(frame.id or 0) for frame in seen])
    assert seen[-1].turn_id == turn


async def test_r05_p08_nobody_watches_and_the_turn_goes_on(cluster: Cluster) -> None:
    """Claude-Code-Agent-Monitor#307, vercel/ai#470: a whole turn without one viewer, then everything from zero."""
    a = cluster.client(0)
    session = await a.create("echo")
    turn = (await a.submit(session, "hello there"))["turn_id"]

    async with asyncio.timeout(PATIENCE):
        while (await a.turn(session, turn))["status"] != "completed":
            await asyncio.sleep(0.02)
    stream = cluster.client(1).stream(session, 0)
    await terminal(stream, turn)
    assert_gapless(stream.ids)


async def test_a_killed_gateway_does_not_stop_the_turn(cluster: Cluster, tmp_path: Path) -> None:
    """Design §10: kill -9 of the gateway that submitted and that shows; the other one goes on from the last id."""
    go = tmp_path / "go"
    a = cluster.client(0)
    session = await a.create("hold")
    stream = await a.stream(session, 0).opened()
    turn = (await a.submit(session, str(go)))["turn_id"]
    await stream.event("item.delta")
    await cluster.gateways[0].kill()
    await stream.end()
    go.touch()
    rest = cluster.client(1).stream(session, stream.last_id)
    await terminal(rest, turn)
    assert_gapless(stream.ids + rest.ids)


async def test_c07_the_same_key_from_twenty_clients(cluster: Cluster) -> None:
    """langgenius/dify#39685: over two gateways at once: one turn, twenty equal replies; another body: 409."""
    clients = [cluster.client(number % 2) for number in range(20)]
    session = await clients[0].create("echo")
    path = f"/v1/sessions/{session}/turns"
    answers = await asyncio.gather(
        *(client.request("POST", path, {"input": "once"}, Idempotency_Key="k") for client in clients)
    )
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.content for answer in answers}) == 1
    assert len((await clients[0].json("GET", path))["items"]) == 1
    other = await clients[1].request("POST", path, {"input": "twice"}, Idempotency_Key="k")
    assert other.status_code == 409


async def test_a_killed_agent_process_is_not_noticed(cluster: Cluster) -> None:
    """Design §10: requests go to the other agent process, replays too, and no turn is doubled."""
    a = cluster.client(0)
    session = await a.create("echo")
    stream = await a.stream(session, 0).opened()
    await cluster.agents[0].kill()
    turns = [(await a.submit(session, f"turn {number}", key=f"k{number}"))["turn_id"] for number in range(4)]
    await terminal(stream, turns[-1])
    assert_gapless(stream.ids)
    assert [
        t["turn_id"] for t in sorted((await a.json("GET", f"/v1/sessions/{session}/turns"))["items"], key=_place)
    ] == turns


def _place(turn: dict[str, int]) -> int:
    return turn["enqueue_sequence"]


async def test_c01_a_second_viewer_sees_what_the_first_submits(cluster: Cluster) -> None:
    """mindconnect#26: the stream is the session's: a tab that opened while it was idle gets the input and the rest."""
    one, two = cluster.client(0), cluster.client(1)
    session = await one.create("echo")
    idle = await two.stream(session, 1).opened()
    turn = (await one.submit(session, "seen by both"))["turn_id"]
    await terminal(idle, turn)
    assert idle.committed[0].json["data"]["input"] == [{"type": "text", "text": "seen by both"}]
    assert_gapless(idle.ids, first=2)


async def test_two_installations_share_the_servers(cluster: Cluster, clusters: Clusters) -> None:
    """Namespaces keep two installations on one PostgreSQL and one NATS apart."""
    async with clusters.start(on=cluster, serve=["echo=tests.support.agents:echo"]) as other:
        assert other.namespace != cluster.namespace
        here, there = cluster.client(0), other.client(0)
        ours = await here.create("echo", external_id="same")
        theirs = await there.create("echo", external_id="same")
        await asyncio.gather(here.run(ours, "ours"), there.run(theirs, "theirs"))
        assert (await here.request("GET", f"/v1/sessions/{theirs}")).status_code == 404
        for client, session, text in ((here, "same", "ours"), (there, "same", "theirs")):
            assert _said(await client.messages(session)) == [text, text + " "]


def _said(messages: list[dict[str, list[dict[str, str]]]]) -> list[str]:
    return ["".join(part["text"] for part in message["parts"]) for message in messages]


async def test_nats_is_down_in_mid_turn_and_comes_back_empty(clusters: Clusters) -> None:
    """Design §10: with the broker down submits get 202, turns complete, viewers get all within 6 s; wiped, too."""
    settings = {"TURNLOG_GATEWAY_HEADS_SECONDS": "1"}
    async with clusters.start(gateways=2, own_nats=1, settings=settings) as cluster:
        a, b = cluster.client(0), cluster.client(1)
        session = await a.create("slow")
        stream = await b.stream(session, 0).opened()
        first = (await a.submit(session, "20 0.05"))["turn_id"]
        await stream.event("item.delta")
        await cluster.wipe_nats()
        second = (await a.submit(session, "1 0"))["turn_id"]
        down = Stopwatch()
        await terminal(stream, first)
        await terminal(stream, second)
        assert down() < 6
        await cluster.nats.start()
        up = Stopwatch()
        third = (await a.submit(session, "3 0.01"))["turn_id"]
        await terminal(stream, third)
        assert up() < 6
        assert_gapless(stream.ids)
        assert await cluster.check() == []
