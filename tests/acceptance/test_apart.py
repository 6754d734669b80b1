"""What must not meet: users, installations, odd names, and what is private."""

import asyncio
import json
import urllib.parse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats
from nats.aio.msg import Msg

from infra.nats.subjects import inbox_prefix
from tests.support.client import Client, terminal
from tests.support.cluster import Cluster, Clusters
from tests.support.gateways import JWT_SECRET, user_token
from tests.support.model_agents import MARKER
from tests.support.sse import Stream, assert_gapless

NAMES = ("*", ">", "a.b", "a b", "$JS.API.>", "%2e", "ü😀", "%", "+", "a;b=c")
JWT = {"TURNLOG_AUTH": "jwt", "TURNLOG_JWT_SECRET": JWT_SECRET}


@asynccontextmanager
async def everything_on(cluster: Cluster) -> AsyncIterator[list[Msg]]:
    """All that is said on the installation's subjects meanwhile."""
    user, password = cluster.nats.credentials("operator", namespace=cluster.namespace)
    inbox = inbox_prefix(cluster.namespace, "operator").encode()
    broker = await nats.connect(cluster.nats.url, user=user, password=password, inbox_prefix=inbox)
    heard: list[Msg] = []

    async def hear(message: Msg) -> None:
        heard.append(message)

    await broker.subscribe(f"{cluster.namespace}.>", cb=hear)
    await broker.flush()
    try:
        yield heard
        await broker.flush()
    finally:
        await broker.close()


async def test_odd_external_ids_of_two_users_work_and_stay_apart(clusters: Clusters) -> None:
    """Subjects, tables and paths see only ids of ours, so no name is a wildcard, and one name is as many sessions as
    it has owners."""
    async with clusters.start(serve=["echo=tests.support.agents:echo"], settings=JWT) as cluster:
        users = {user: cluster.client(0, user_token(user)) for user in ("ann", "bob")}
        async with everything_on(cluster) as heard:
            sessions = {
                (user, name): await client.create("echo", external_id=name)
                for user, client in users.items()
                for name in NAMES
            }
            assert len(set(sessions.values())) == 2 * len(NAMES)
            said = (_say(users[user], name, f"{user} says {name}") for user, name in sessions)
            streams = await asyncio.gather(*said)
        subjects = {message.subject for message in heard}
        for (user, name), stream in zip(sessions, streams, strict=True):
            client, path = users[user], urllib.parse.quote(name, safe="")
            found = await client.json("GET", f"/v1/sessions/{path}")
            assert (found["session_id"], found["external_id"]) == (sessions[user, name], name)
            assert_gapless(stream.ids)
            assert {frame.json["session_id"] for frame in stream.committed} == {sessions[user, name]}
            texts = [
                frame.json["data"]["text"].strip() for frame in stream.committed if frame.event == "item.completed"
            ]
            assert texts == [f"{user} says {name}"]
            stranger = users["bob" if user == "ann" else "ann"]
            theirs = await stranger.request("GET", f"/v1/sessions/{sessions[user, name]}")
            assert theirs.status_code == 404
            assert f"{cluster.namespace}.session.{sessions[user, name]}.event" in subjects
        assert {subject.split(".")[2] for subject in subjects if ".session." in subject} == set(sessions.values())
        listed = (await users["ann"].json("GET", "/v1/sessions?limit=100"))["items"]
        assert sorted(item["external_id"] for item in listed) == sorted(NAMES)
        assert await cluster.check() == []


async def _say(client: Client, name: str, text: str) -> Stream:
    path = urllib.parse.quote(name, safe="")
    stream = await client.stream(path, 0).opened()
    turn = (await client.submit(path, text))["turn_id"]
    await terminal(stream, turn)
    return stream


async def test_a_marker_in_the_system_prompt_is_nowhere_outside(clusters: Clusters) -> None:
    """Invariant 13: on no subject of the broker, in no stream, JSON replay, read model, metric or log, though the
    workers' log says everything it can."""
    settings = {"TURNLOG_LOG_LEVEL": "debug"}
    serve = ["inspector=tests.support.model_agents:inspector"]
    async with clusters.start(serve=serve, projectors=1, settings=settings) as cluster:
        client = cluster.client()
        async with everything_on(cluster) as heard:
            session = await client.create("inspector")
            stream = await client.stream(session, 0).opened()
            turn = (await client.submit(session, cluster.dsn()))["turn_id"]
            await terminal(stream, turn)
        (kept,) = await cluster.fetch(
            "SELECT count(*) FROM events WHERE session_id = $1::uuid AND position($2::bytea IN private) > 0",
            session,
            MARKER.encode(),
        )
        assert kept[0] > 0, "it is kept where it belongs, so there was something to leak"
        outside = {
            "stream": repr(stream.frames),
            "replay": json.dumps(await client.events(session)),
            "messages": json.dumps(await client.messages(session)),
            "turn": json.dumps(await client.turn(session, turn)),
            "broker": repr([(message.subject, message.headers, message.data) for message in heard]),
            "logs": cluster.logs(),
        }
        for process in (*cluster.gateways, *cluster.agents):
            answer = await client.http.get(process.url + "/metrics")
            assert answer.status_code == 200
            outside[process.name] = answer.text
        assert [place for place, text in outside.items() if MARKER in text] == []
        assert len(heard) > len(stream.ids)
        assert "turn.executes" in outside["logs"]


async def test_two_installations_on_one_postgresql_and_one_broker(clusters: Clusters) -> None:
    """Same names, same users, other namespace: neither sees, hears or executes anything of the other."""
    serve = ["echo=tests.support.agents:echo"]
    async with (
        clusters.start(serve=serve, settings=JWT, projectors=1) as one,
        clusters.start(serve=serve, settings=JWT, projectors=1, on=one) as two,
        everything_on(one) as heard_one,
        everything_on(two) as heard_two,
    ):
        assert one.namespace != two.namespace
        ids = {}
        for cluster in (one, two):
            client = cluster.client(0, user_token("ann"))
            ids[cluster.namespace] = await client.create("echo", external_id="same")
            await client.run("same", cluster.namespace)
        for cluster, other in ((one, two), (two, one)):
            client = cluster.client(0, user_token("ann"))
            foreign = await client.request("GET", f"/v1/sessions/{ids[other.namespace]}")
            assert foreign.status_code == 404
            rows = await cluster.fetch("SELECT DISTINCT session_id::text AS id FROM events")
            assert [row["id"] for row in rows] == [ids[cluster.namespace]]
            assert await cluster.check() == []
    for cluster, heard in ((one, heard_one), (two, heard_two)):
        sessions = {message.subject.split(".")[2] for message in heard if ".session." in message.subject}
        assert sessions == {ids[cluster.namespace]}
