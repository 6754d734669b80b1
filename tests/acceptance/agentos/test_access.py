"""Who may, over the AgentOS routes; and streams that are never silent. In this process, without a worker."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from infra.embedded import EmbeddedNats
from infra.settings.groups import AgentOS
from services.gateway.sse.limits import Limits
from tests.acceptance.agentos.caller import Caller
from tests.support.databases import Databases
from tests.support.delivery import delivery_stand
from tests.support.gateways import AGENT, http_stand, user_token


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
