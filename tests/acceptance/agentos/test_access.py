"""Who may, over the AgentOS routes; and streams that are never silent. In this process, without a worker."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from infra.embedded import EmbeddedNats
from infra.settings.groups import AgentOS
from services.gateway.sse.limits import Limits
from tests.acceptance.agentos.caller import Caller, events, indices, said
from tests.support.databases import Databases
from tests.support.delivery import DeliveryStand, delivery_stand
from tests.support.gateways import AGENT, http_stand, user_token
from tests.support.waiting import eventually


@asynccontextmanager
async def callers(url: str, *users: str) -> AsyncIterator[list[Caller]]:
    made = [Caller(url, {"Authorization": f"Bearer {user_token(user)}"}) for user in users]
    try:
        yield made
    finally:
        for caller in made:
            await caller.http.aclose()


async def test_what_is_anothers_is_nowhere(databases: Databases) -> None:
    async with http_stand(databases, gateways=2) as stand, callers(stand.gateways[0] + "/agentos", "ann", "bob") as who:
        ann, bob = who
        run = await ann.begin(AGENT, "secret", "shared", user_id="somebody else")
        mine = await ann.poll(AGENT, run, "shared")
        assert (mine["status"], mine["user_id"]) == ("PENDING", "ann"), "the token's user, whatever the form says"
        path = f"/agents/{AGENT}/runs"
        assert (await bob.get(f"{path}/{run}", session_id="shared")).json() == {"detail": "Run not found"}
        assert (await bob.get(path, session_id="shared")).json() == {"detail": "Session not found"}
        assert (await bob.post(f"{path}/{run}/cancel")).status_code == 404
        assert (await bob.post(f"{path}/{run}/continue", session_id="shared", stream="false")).status_code == 404
        assert (await bob.get(f"{path}/{run}/checkpoints", session_id="shared")).status_code == 404
        assert (await bob.get("/sessions/shared")).status_code == 404
        assert (await bob.get("/sessions")).json()["data"] == []
        assert (await bob.stream(f"{path}/{run}/resume", session_id="shared"))[0].event == "error"
        own = await bob.begin(AGENT, "mine", "shared")
        assert own != run, "a name of a session is its owner's"
        assert (await ann.get("/sessions/shared")).json()["session_name"] == "secret"
        cancelled = await ann.post(f"{path}/{run}/cancel")
        assert cancelled.json()["status"] == "CANCELLED"
        found = await ann.poll(AGENT, run, "shared")
        assert (found["cancellation_stage"], found["content"]) == ("PENDING", f"Run {run} was cancelled")


async def test_without_a_token_nothing(databases: Databases) -> None:
    async with http_stand(databases) as stand, Caller(stand.gateways[0] + "/agentos") as nobody:
        path = f"/agents/{AGENT}/runs"
        answer = await nobody.post(path, message="x", session_id="s")
        assert (answer.status_code, answer.json()) == (401, {"detail": "Authorization header missing"})
        junk = await nobody.post(path, {"Authorization": "Bearer junk"}, message="x", session_id="s")
        assert junk.json() == {"detail": "Invalid token"}
        for place in ("/config", "/agents", "/sessions", "/eval-runs"):
            assert (await nobody.get(place)).status_code == 401
        assert (await nobody.get("/health")).status_code == 200


@pytest.mark.parametrize(("prefix", "there", "nowhere"), [("/", "", "/agentos"), ("off", None, "/agentos")])
async def test_under_the_root_or_not_at_all(databases: Databases, prefix: str, there: str | None, nowhere: str) -> None:
    groups: dict[str, Any] = {"agentos": AgentOS(prefix=prefix)}
    async with http_stand(databases, **groups) as stand, callers(stand.gateways[0], "ann") as who:
        assert (await who[0].get(f"{nowhere}/agents")).status_code == 404
        if there is not None:
            assert [one["id"] for one in (await who[0].get(f"{there}/agents")).json()] == [AGENT]
            assert (await who[0].get("/agents/nope")).json() == {"detail": "Agent not found"}
            assert (await who[0].get("/sessions/x/y")).json() == {"detail": "Not Found"}
            assert (await who[0].get("/v1/nowhere")).json()["code"] == "not_found"


@pytest.mark.parametrize("prefix", ["/", "/agentos"])
async def test_an_event_source_resumes_by_its_last_id(databases: Databases, nats: EmbeddedNats, prefix: str) -> None:
    """By GET, and by nothing but the `id:` lines, at either gateway, until it is told to stop."""
    async with delivery_stand(databases, nats, gateways=2, agentos=AgentOS(prefix=prefix)) as stand:
        urls = [gateway.url + prefix.rstrip("/") for gateway in stand.gateways]
        async with callers(urls[0], "ann") as (ann,), callers(urls[1], "ann") as (there,):
            writer = await stand.session()
            run = await writer.start()
            for word in ("one ", "two ", "three"):
                await writer.say(word)
            await writer.finish()
            path = f"/agents/{AGENT}/runs/{run}/resume"
            seen: list[dict[str, Any]] = []
            while True:
                caller = (ann, there)[len(seen) % 2]
                headers = {"Last-Event-ID": str(seen[-1]["event_index"])} if seen else {}
                query = {"session_id": writer.session}
                async with caller.http.stream("GET", path, params=query, headers=headers) as answer:
                    if answer.status_code == 204:
                        break
                    async for heard in httpx2.EventSource(answer):
                        if heard.id:
                            assert heard.event == json.loads(heard.data)["event"]
                            seen.append(json.loads(heard.data))
                            break
            assert indices(seen) == list(range(len(seen)))
            assert said(seen) == seen[-1]["content"] == "one two three"
            assert seen == await ann.resume(AGENT, run, writer.session, None)


async def test_no_stream_is_silent(databases: Databases, nats: EmbeddedNats) -> None:
    """Weakness 12: inline, in the background and resumed; by headers, proxies are told to keep nothing back."""
    async with delivery_stand(databases, nats, limits=Limits(comment_seconds=0.2)) as stand:
        url = stand.gateways[0].url + "/agentos"
        async with callers(url, "ann") as (ann,):
            path = f"/agents/{AGENT}/runs"
            run = await ann.begin(AGENT, "x", "quiet")
            for place, form in (
                (path, {"message": "x", "session_id": "quiet"}),
                (path, {"message": "x", "session_id": "quiet", "background": "true"}),
                (f"{path}/{run}/resume", {"session_id": "quiet"}),
            ):
                async with ann.http.stream("POST", place, data=form) as answer:
                    assert answer.headers["x-accel-buffering"] == "no"
                    assert answer.headers["cache-control"] == "no-cache, no-transform"
                    comments = 0
                    async for line in answer.aiter_lines():
                        comments += line.startswith(":")
                        if comments == 3:
                            break
                assert comments == 3
            assert json.loads((await ann.get("/health")).text)["status"] == "ok"


async def test_a_stream_that_the_server_cuts_says_so(databases: Databases, nats: EmbeddedNats) -> None:
    """It must not look finished: the last frame is an error, and the rest comes by a resume at another gateway."""
    async with delivery_stand(databases, nats, gateways=2) as stand:
        first, second = [gateway.url + "/agentos" for gateway in stand.gateways]
        async with callers(first, "ann") as (ann,), callers(second, "ann") as (there,):
            writer = await stand.session()
            run = await writer.start()
            await writer.say("one ")
            path = f"/agents/{AGENT}/runs/{run}/resume"
            cutting = asyncio.create_task(ann.stream(path, session_id=writer.session))
            await eventually(viewed(stand), "the stream is open")
            await stand.gateways[0].hub.drain(0.0)
            frames = await cutting
            assert frames[-1].event == "error"
            assert json.loads(frames[-1].data)["error"].endswith("the run goes on: resume it")
            await writer.say("two")
            await writer.finish()
            seen = events(frames[:-1])
            rest = await there.resume(AGENT, run, writer.session, seen[-1]["event_index"])
            assert said(seen + rest) == rest[-1]["content"] == "one two"
            assert indices(seen + rest) == list(range(len(seen + rest)))


def viewed(stand: DeliveryStand) -> Callable[[], Awaitable[bool]]:
    async def is_viewed() -> bool:
        return stand.gateways[0].hub.viewers > 0

    return is_viewed
