"""What one user may begin: turns a minute, and turns open at once; a known key is answered all the same."""

import asyncio
from typing import Any

import asyncpg

from domain.ids import TurnId
from infra.postgres.registrations import Owner
from services.gateway.beginning import owner_key
from tests.acceptance.agentos.caller import Caller
from tests.support.client import Client
from tests.support.databases import Databases
from tests.support.gateways import AGENT, HttpStand, http_stand, user_token


async def _submits(clients: list[Client], sessions: list[str]) -> list[Any]:
    """One a session, all at once, over all gateways in turn."""
    return await asyncio.gather(
        *(
            clients[number % len(clients)].request("POST", f"/v1/sessions/{session}/turns", {"input": "x"})
            for number, session in enumerate(sessions)
        )
    )


async def _agent_database(stand: HttpStand) -> Any:
    dsn = stand.settings.postgres.agent
    assert dsn is not None
    return await asyncpg.connect(dsn.get_secret_value())


async def test_twenty_submits_at_once_over_two_gateways_never_pass_the_quota(databases: Databases) -> None:
    limits = {"active_turns": 5}
    async with http_stand(databases, agents=2, gateways=2, limits=limits) as stand:
        clients = [stand.client(0), stand.client(1)]
        ann, bob = clients[0], stand.client(1, user_token("bob"))
        sessions = [await ann.create(AGENT) for _ in range(20)]
        answers = await _submits(clients, sessions)
        assert sorted(answer.status_code for answer in answers) == [202] * 5 + [429] * 15
        for refused in (answer for answer in answers if answer.status_code == 429):
            assert int(refused.headers["Retry-After"]) > 0
            assert (refused.json()["code"], refused.json()["limit"]) == ("too_many_turns", 5)
        queued = [session for session, answer in zip(sessions, answers, strict=True) if answer.status_code == 202]
        idle = [session for session in sessions if session not in queued]
        # Nobody else's turns count, nor does one count for another workspace.
        await bob.submit(await bob.create(AGENT), "x")
        # Running and paused ones count, too; each end of any kind makes room for one.
        claim = await stand.claim(queued[0])
        assert [one.status_code for one in await _submits(clients, idle[:2])] == [429, 429]
        await stand.finish(claim)
        turns = (await ann.json("GET", f"/v1/sessions/{queued[1]}/turns"))["items"]
        await ann.json("POST", f"/v1/sessions/{queued[1]}/turns/{turns[0]['turn_id']}/cancel")
        assert (await ann.request("DELETE", f"/v1/sessions/{queued[2]}")).status_code == 204
        again = await _submits(clients, idle)
        assert sorted(one.status_code for one in again) == [202] * 3 + [429] * (len(idle) - 3)
        # A turn that goes on from another one is one more.
        branch = f"/v1/sessions/{queued[0]}/turns/{claim.turn_id}"
        for path, body in ((f"{branch}/regenerate", {}), (f"{branch}/fork", {"from": "end", "input": "x"})):
            assert (await ann.json("POST", path, body, status=429))["code"] == "too_many_turns"
        connection = await _agent_database(stand)
        try:
            open_now = await connection.fetch("SELECT owner::text, count(*) FROM open_turns GROUP BY owner")
            assert {row[0]: row[1] for row in open_now} == {owner_key(Owner("ann")): 5, owner_key(Owner("bob")): 1}
            # What a worker of an older release leaves behind does not lock its user out.
            await connection.execute(
                "INSERT INTO open_turns (session_id, turn_id, owner) SELECT session_id, turn_id, $1::text::uuid"
                " FROM turns WHERE status = 'completed'",
                owner_key(Owner("bob")),
            )
        finally:
            await connection.close()
        mine = [await bob.create(AGENT) for _ in range(4)]
        assert [one.status_code for one in await _submits([bob], mine)] == [202] * 4


async def test_a_known_key_is_answered_whatever_the_user_may_and_costs_nothing(databases: Databases) -> None:
    limits, gateway = {"active_turns": 2}, {"starts_per_minute": 4}
    async with http_stand(databases, limits=limits, gateway=gateway) as stand:
        ann = stand.client()
        session = await ann.create(AGENT)
        path = f"/v1/sessions/{session}/turns"
        first = await ann.submit(session, "one", "k1")
        for _ in range(10):
            assert await ann.submit(session, "one", "k1") == first, "ten repeats, and three starts are left"
        claim = await stand.claim(session)
        await stand.finish(claim)
        branch = f"{path}/{claim.turn_id}/regenerate"
        again = await ann.json("POST", branch, {}, status=202, Idempotency_Key="k2")
        await ann.submit(session, "two", "k3")
        # The quota is full now: what is known is still known.
        assert await ann.submit(session, "two", "k3")
        full = await ann.json("POST", path, {"input": "x"}, status=429, Idempotency_Key="k4")
        assert full["code"] == "too_many_turns"
        # And so is the minute.
        for body, key in (({"input": "x"}, {}), ({"input": "x"}, {"Idempotency_Key": "k5"})):
            limited = await ann.request("POST", path, body, **key)
            assert (limited.status_code, limited.json()["code"]) == (429, "rate_limited")
            assert int(limited.headers["Retry-After"]) > 0
        assert await ann.submit(session, "one", "k1") == first
        assert await ann.json("POST", branch, {}, status=202, Idempotency_Key="k2") == again
        mismatch = await ann.json("POST", path, {"input": "other"}, status=409, Idempotency_Key="k1")
        assert mismatch["code"] == "idempotency_mismatch"
        # Asking for keys has an end, too.
        codes = [(await ann.request("POST", path, {"input": "x"}, Idempotency_Key=f"u{n}")).status_code for n in "abc"]
        assert codes == [429] * 3
        assert (await ann.request("POST", path, {"input": "one"}, Idempotency_Key="k1")).status_code == 429


async def test_agentos_has_the_same_bounds_in_its_own_words(databases: Databases) -> None:
    limits, gateway = {"active_turns": 1}, {"starts_per_minute": 2}
    async with http_stand(databases, limits=limits, gateway=gateway) as stand:
        caller = Caller(stand.gateways[0] + "/agentos", {"Authorization": f"Bearer {user_token()}"})
        try:

            async def begin(key: str, message: str = "one") -> Any:
                form = {"message": message, "session_id": "s", "stream": "false", "background": "true"}
                return await caller.post(f"/agents/{AGENT}/runs", {"Idempotency-Key": key}, **form)

            first = await begin("k1")
            assert first.status_code == 202
            assert (await begin("k1")).json() == first.json()
            full = await begin("k2")
            assert (full.status_code, full.json()) == (
                429,
                {"detail": "1 turns of this user have not ended yet; more are accepted when some have."},
            )
            limited = await begin("k3")
            assert (limited.status_code, int(limited.headers["Retry-After"]) > 0) == (429, True)
            assert "a minute" in limited.json()["detail"]
            repeated = await begin("k1")
            assert (repeated.status_code, repeated.json()) == (202, first.json())
        finally:
            await caller.http.aclose()


async def test_without_authentication_there_is_no_quota(databases: Databases) -> None:
    async with http_stand(databases, auth="off", limits={"active_turns": 1}) as stand:
        me = stand.client(token="")
        session = await me.create(AGENT)
        turns = {TurnId((await me.submit(session, "x"))["turn_id"]) for _ in range(3)}
        assert len(turns) == 3
