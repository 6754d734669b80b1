"""What repeats must not do: one key is one turn, one name one session, whoever asks, whatever was lost on the way."""

import asyncio
import time
from typing import Any

import asyncpg

from domain.ids import CommandKey, SessionId
from infra.pipeline.group import lock_key
from infra.postgres.registrations import Owner
from services.gateway import registering
from services.gateway.bodies import CreateSession
from services.gateway.registering import new_registration
from services.gateway.sweeper import Sweeper
from tests.support.client import Client
from tests.support.cutting import cutting_proxy
from tests.support.databases import Databases
from tests.support.gateways import AGENT, gateway_deps, http_stand

IMPATIENT = {"unavailable_seconds": 1.5}


async def _answers(clients: list[Client], path: str, body: Any, **headers: str) -> list[Any]:
    asked = (client.request("POST", path, body, **headers) for client in clients)
    return await asyncio.gather(*asked)


async def test_c07_one_key_from_20_clients_over_two_gateways_is_one_turn(databases: Databases) -> None:
    """langgenius/dify#39685: the key was accepted but not enforced."""
    async with http_stand(databases, agents=2, gateways=2) as stand:
        clients = [stand.client(number % 2) for number in range(20)]
        session = await clients[0].create(AGENT)
        path = f"/v1/sessions/{session}/turns"
        answers = await _answers(clients, path, {"input": "one"}, Idempotency_Key="same")
        assert {answer.status_code for answer in answers} == {202}
        assert len({answer.content for answer in answers}) == 1
        assert [answer.headers.get("Idempotency-Replayed") for answer in answers].count(None) == 1
        turns = (await clients[1].json("GET", path))["items"]
        assert [turn["turn_id"] for turn in turns] == [answers[0].json()["turn_id"]]
        other = await clients[1].json("POST", path, {"input": "two"}, status=409, Idempotency_Key="same")
        assert other["code"] == "idempotency_mismatch"


async def test_c07_one_external_id_from_20_clients_over_two_gateways_is_one_session(databases: Databases) -> None:
    """The same for creating a session: one is begun, all others get it with a token of their own."""
    async with http_stand(databases, agents=2, gateways=2) as stand:
        clients = [stand.client(number % 2) for number in range(20)]
        answers = await _answers(clients, "/v1/sessions", {"agent_id": AGENT, "external_id": "same"})
        assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
        sessions = {answer.json()["session_id"] for answer in answers}
        assert len(sessions) == 1
        page = await stand.deps[0].agent.page(sessions.pop(), 0, "json")
        assert (page.first, page.last) == (1, 1)
        valid = [stand.client(token=answer.json()["session_token"]) for answer in answers]
        seen = [(await client.request("GET", "/v1/sessions/same/status")).status_code for client in valid]
        assert sorted(seen) == [200] + [401] * 19


async def test_c08_a_reply_lost_after_the_commit_is_settled_at_another_agent(databases: Databases) -> None:
    """aegra/aegra#501, NousResearch/hermes-agent#88400: a lost reply, a retry, a second run."""
    # The gateway asks its agents in turn, so some of these commands meet the proxy first.
    async with (
        http_stand(databases, agents=2, gateways=0) as stand,
        cutting_proxy(stand.agents[0]) as proxy,
        stand.gateway([proxy.url, stand.agents[1]]) as ann,
    ):
        proxy.lose(10, "/internal/commands")
        session = await ann.create(AGENT)
        first = [await ann.submit(session, f"{number}", f"k{number}") for number in range(4)]
        assert proxy.lost > 0
        proxy.lose(0)
        again = [await ann.submit(session, f"{number}", f"k{number}") for number in range(4)]
        assert again == first
        assert [turn["enqueue_sequence"] for turn in first] == [1, 2, 3, 4]
        other = await ann.json(
            "POST", f"/v1/sessions/{session}/turns", {"input": "x"}, status=409, Idempotency_Key="k0"
        )
        assert other["code"] == "idempotency_mismatch"


async def test_c08_without_a_key_a_lost_reply_makes_no_second_turn(databases: Databases) -> None:
    """The gateway mints a key a request, so its own retries are repeats."""
    async with (
        http_stand(databases, gateways=0) as stand,
        cutting_proxy(stand.agents[0]) as proxy,
        stand.gateway([proxy.url]) as ann,
    ):
        session = await ann.create(AGENT)
        proxy.lose(1)
        await ann.submit(session, "one")
        assert proxy.lost == 1
        assert (await ann.json("GET", f"/v1/sessions/{session}/status"))["queued"] == 1


async def test_k10_a_session_that_is_locked_for_a_while_is_asked_again(databases: Databases) -> None:
    """Longer than a command waits for a lock, shorter than the gateway tries: accepted, once, also without a key. For
    longer: refused in time, and the same key settles it."""
    async with http_stand(databases, gateways=0) as stand:
        dsn = stand.settings.postgres.agent
        assert dsn is not None
        async with stand.gateway(stand.agents) as ann:
            session = await ann.create(AGENT)
            holder = await asyncpg.connect(dsn.get_secret_value())
            try:
                await holder.execute("SELECT pg_advisory_lock($1)", lock_key(session))
                submitting = asyncio.create_task(ann.submit(session, "one"))
                await asyncio.wait((submitting,), timeout=2.5)
                assert not submitting.done()
                await holder.execute("SELECT pg_advisory_unlock($1)", lock_key(session))
                assert (await submitting)["enqueue_sequence"] == 1
                await holder.execute("SELECT pg_advisory_lock($1)", lock_key(session))
                started = time.monotonic()
                body, path = {"input": "two"}, f"/v1/sessions/{session}/turns"
                refused = await ann.request("POST", path, body, Idempotency_Key="k")
                assert (refused.status_code, refused.json()["code"]) == (503, "lock_timeout")
                assert int(refused.headers["Retry-After"]) > 0
                assert time.monotonic() - started < 9
            finally:
                await holder.close()
            assert (await ann.submit(session, "two", "k"))["enqueue_sequence"] == 2
            assert (await ann.json("GET", f"/v1/sessions/{session}/status"))["queued"] == 2


async def test_c08_create_goes_on_where_a_crash_stopped_it(databases: Databases) -> None:
    """Registered here and opened there, but the answer lost: the same request gives the same session."""
    async with (
        http_stand(databases, gateways=0, agent=IMPATIENT) as stand,
        cutting_proxy(stand.agents[0]) as proxy,
        stand.gateway([proxy.url]) as ann,
    ):
        proxy.lose(1_000)
        body = {"agent_id": AGENT, "external_id": "x"}
        failed = await ann.request("POST", "/v1/sessions", body)
        assert (failed.status_code, failed.headers["Retry-After"]) == (503, "1")
        await ann.json("GET", "/v1/sessions/x", status=404)
        assert (await ann.json("POST", "/v1/sessions", body | {"title": "y"}, status=409))["code"]
        proxy.lose(0)
        made = await ann.json("POST", "/v1/sessions", body, status=200)
        assert made["last_sequence"] == 1
        assert (await ann.json("GET", "/v1/sessions/x"))["session_id"] == made["session_id"]


async def test_the_sweeper_settles_what_crashes_left(databases: Databases) -> None:
    """Starting for too long: opened, or failed where the agent is unknown. Deleted but not closed: closed."""
    async with http_stand(databases) as stand:
        ann, deps = stand.client(), stand.deps[0]
        owner = Owner("ann")
        begun = []
        for name, agent_id in (("good", AGENT), ("bad", "nobody")):
            body = CreateSession(agent_id=agent_id, external_id=name)
            new = new_registration(SessionId(deps.ids.uuid7()), owner, body)
            begun.append((await deps.registrations.begin(new))[0])
        gone = SessionId(await ann.create(AGENT, external_id="gone"))
        assert await deps.registrations.delete(gone)
        assert await Sweeper(deps.agent, deps.registrations, deps.ids, 60.0).sweep() == 0
        sweeper = Sweeper(deps.agent, deps.registrations, deps.ids, 0.0)
        assert await sweeper.sweep() == 3
        states = [await deps.registrations.get(one.session_id) for one in begun]
        assert [row.state for row in states if row is not None] == ["active", "failed"]
        assert (await ann.json("GET", "/v1/sessions/good"))["session_id"] == begun[0].session_id
        assert (await deps.agent.page(gone, 0)).closed
        assert await sweeper.sweep() == 0
        # The failed one's name is free; the settled one's token is given to whoever repeats the request.
        await ann.create(AGENT, external_id="bad")
        again = await ann.json("POST", "/v1/sessions", {"agent_id": AGENT, "external_id": "good"}, status=200)
        assert again["session_id"] == begun[0].session_id


async def test_delete_is_answered_while_the_agent_service_is_away(databases: Databases) -> None:
    async with (
        http_stand(databases, gateways=0, agent=IMPATIENT) as stand,
        cutting_proxy(stand.agents[0]) as proxy,
        gateway_deps(stand.settings, [proxy.url]) as deps,
    ):
        body = CreateSession(agent_id=AGENT, external_id="x")
        made, fresh = await registering.create(deps, Owner("ann"), body)
        assert fresh
        row = await deps.registrations.get(SessionId(made.session_id))
        assert row is not None
        proxy.lose(1_000)
        await registering.delete(deps, row)
        proxy.lose(0)
        assert await Sweeper(deps.agent, deps.registrations, deps.ids, 0.0).sweep() == 1
        assert (await deps.agent.page(made.session_id, 0)).closed
        await registering.close(deps.agent, deps.registrations, row, CommandKey("again"))


async def test_without_an_agent_service_the_answer_is_503(databases: Databases) -> None:
    closed = "http://127.0.0.1:9"
    async with http_stand(databases, agent_urls=[closed], agent={"unavailable_seconds": 0.2}) as stand:
        ann = stand.client()
        for method, path, body in (
            ("GET", "/v1/agents", None),
            ("POST", "/v1/sessions", {"agent_id": AGENT}),
        ):
            answer = await ann.request(method, path, body)
            assert (answer.status_code, answer.json()["code"]) == (503, "agent_unavailable")
            assert int(answer.headers["Retry-After"]) > 0
        assert (await ann.json("GET", "/readyz", status=503))["failing"] == {"agent": "AgentUnavailable"}
        assert await ann.json("GET", "/healthz") == {"status": "ok", "failing": {}}
        assert (await ann.json("GET", "/v1/sessions"))["items"] == []
