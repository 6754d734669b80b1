"""Sessions over the public API: create and repeat, names, owners, tokens, change, list, delete."""

from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest

from tests.support.client import Client
from tests.support.databases import Databases
from tests.support.gateways import AGENT, HttpStand, http_stand, user_token


@pytest.fixture
async def stand(databases: Databases) -> AsyncIterator[HttpStand]:
    async with http_stand(databases) as made:
        yield made


async def test_create_gives_the_session_and_its_token_once(stand: HttpStand) -> None:
    ann = stand.client()
    made = await ann.json("POST", "/v1/sessions", {"agent_id": AGENT, "title": "First"}, status=201)
    assert set(made) == {"session_id", "external_id", "agent_id", "session_token", "last_sequence", "epoch"}
    assert (made["external_id"], made["agent_id"], made["last_sequence"], made["epoch"]) == (None, AGENT, 1, 1)
    seen = await ann.json("GET", f"/v1/sessions/{made['session_id']}")
    assert seen["title"] == "First"
    assert made["session_token"] not in str(seen)
    row = await stand.deps[0].registrations.get(made["session_id"])
    assert row is not None
    assert made["session_token"].encode() not in (row.token_hash or b"")


async def test_the_same_create_again_is_the_same_session_with_a_fresh_token(stand: HttpStand) -> None:
    ann = stand.client()
    body = {"agent_id": AGENT, "external_id": "chat 1", "title": "T", "metadata": {"a": [1, {"b": None}]}}
    first = await ann.json("POST", "/v1/sessions", body, status=201)
    again = await ann.json("POST", "/v1/sessions", body, status=200)
    assert again["session_id"] == first["session_id"]
    assert again["session_token"] != first["session_token"]
    path = f"/v1/sessions/{first['session_id']}"
    await stand.client(token=first["session_token"]).json("GET", path, status=401)
    await stand.client(token=again["session_token"]).json("GET", path, status=200)
    other = await ann.json("POST", "/v1/sessions", body | {"title": "U"}, status=409)
    assert (other["code"], other["session_id"]) == ("external_id_taken", first["session_id"])


async def test_an_unknown_agent_is_refused_and_its_name_stays_free(stand: HttpStand) -> None:
    ann = stand.client()
    refused = await ann.json("POST", "/v1/sessions", {"agent_id": "nobody", "external_id": "x"}, status=404)
    assert (refused["code"], refused["agent_id"]) == ("agent_not_found", "nobody")
    assert (await ann.json("GET", "/v1/sessions"))["items"] == []
    await ann.json("POST", "/v1/sessions", {"agent_id": AGENT, "external_id": "x"}, status=201)


NAMES = ("*", ">", "a.b", "a b", "ü-☃", "a%2Fb", "100%", "{x}", "a:b;c,d&e=f+g", "x" * 255)


async def test_external_ids_work_on_every_route(stand: HttpStand) -> None:
    ann, bob = stand.client(), stand.client(token=user_token("bob"))
    for name in NAMES:
        await _every_route(ann, bob, name)


async def _every_route(ann: Client, bob: Client, name: str) -> None:
    body = {"agent_id": AGENT, "external_id": name}
    mine = await ann.json("POST", "/v1/sessions", body, status=201)
    theirs = await bob.json("POST", "/v1/sessions", body, status=201)
    assert mine["session_id"] != theirs["session_id"]
    path = "/v1/sessions/" + quote(name, safe="")
    assert (await ann.json("GET", path))["session_id"] == mine["session_id"]
    assert (await bob.json("GET", path))["session_id"] == theirs["session_id"]
    queued = await ann.json("POST", f"{path}/turns", {"input": "hi"}, status=202)
    assert (await bob.json("GET", f"{path}/turns"))["items"] == []
    assert (await ann.json("GET", f"{path}/turns/{queued['turn_id']}"))["status"] == "queued"
    assert (await ann.json("GET", f"{path}/status"))["queued"] == 1
    assert (await ann.json("GET", f"{path}/messages"))["items"][0]["parts"] == [{"type": "text", "text": "hi"}]
    await ann.json("POST", f"{path}/turns/{queued['turn_id']}/cancel")
    await ann.json("PATCH", path, {"title": name})
    await ann.json("DELETE", path, status=204)
    await ann.json("GET", path, status=404)
    await bob.json("GET", path)


async def test_bad_external_ids_are_refused_with_a_pointer(stand: HttpStand) -> None:
    ann = stand.client()
    for name in ("", ".", "..", "a/b", "a\\b", "a?b", "a#b", "a\nb", "a\0b", "\x7f", "x" * 256, 5):
        refused = await ann.json("POST", "/v1/sessions", {"agent_id": AGENT, "external_id": name}, status=422)
        assert [fault["pointer"] for fault in refused["errors"]] == ["/external_id"], name


async def test_a_name_wins_over_a_session_id(stand: HttpStand) -> None:
    ann = stand.client()
    plain = await ann.create(AGENT)
    named = await ann.create(AGENT, external_id=plain)
    assert (await ann.json("GET", f"/v1/sessions/{plain}"))["session_id"] == named


async def test_somebody_elses_session_is_not_told_from_none(stand: HttpStand) -> None:
    ann, bob = stand.client(), stand.client(token=user_token("bob"))
    session = await ann.create(AGENT)
    absent = "0190a000-0000-7000-8000-000000000000"
    calls = [
        ("GET", "", None),
        ("PATCH", "", {"title": "x"}),
        ("DELETE", "", None),
        ("POST", "/turns", {"input": "x"}),
        ("GET", "/turns", None),
        ("GET", "/status", None),
        ("GET", "/messages", None),
        ("POST", "/resume", None),
    ]
    for method, rest, body in calls:
        theirs = await bob.request(method, f"/v1/sessions/{session}{rest}", body)
        nobodys = await bob.request(method, f"/v1/sessions/{absent}{rest}", body)
        assert (theirs.status_code, theirs.content) == (404, nobodys.content), (method, rest)
    # The same user in another workspace is another owner.
    elsewhere = stand.client(token=user_token("ann", workspace="w2"))
    await elsewhere.json("GET", f"/v1/sessions/{session}", status=404)


async def test_a_session_token_opens_its_session_only(stand: HttpStand) -> None:
    ann = stand.client()
    made = await ann.json("POST", "/v1/sessions", {"agent_id": AGENT, "external_id": "one"}, status=201)
    other = await ann.create(AGENT)
    held = stand.client(token=made["session_token"])
    await held.submit("one", "hi")
    assert (await held.json("GET", f"/v1/sessions/{made['session_id']}/status"))["queued"] == 1
    await held.json("GET", f"/v1/sessions/{other}", status=404)
    for method, body in (("GET", None), ("POST", {"agent_id": AGENT})):
        refused = await held.json(method, "/v1/sessions", body, status=403)
        assert refused["code"] == "user_needed"
    assert (await held.json("GET", "/v1/agents", status=403))["code"] == "user_needed"
    forged = made["session_token"][:-1] + ("A" if made["session_token"][-1] != "A" else "B")
    await stand.client(token=forged).json("GET", "/v1/sessions/one", status=401)


async def test_a_session_token_expires(databases: Databases) -> None:
    async with http_stand(databases, gateway={"token_seconds": 0.001}) as stand:
        made = await stand.client().json("POST", "/v1/sessions", {"agent_id": AGENT}, status=201)
        held = stand.client(token=made["session_token"])
        await held.json("GET", f"/v1/sessions/{made['session_id']}", status=401)


async def test_patch_changes_what_was_sent(stand: HttpStand) -> None:
    ann = stand.client()
    session = await ann.create(AGENT, title="A", context_version="v1")
    path = f"/v1/sessions/{session}"
    queued = await ann.submit(session, "one")
    changed = await ann.json("PATCH", path, {"starred": True, "context_version": "v2"})
    assert (changed["title"], changed["starred"], changed["context_version"]) == ("A", True, "v2")
    cleared = await ann.json("PATCH", path, {"title": None})
    assert (cleared["title"], cleared["starred"]) == (None, True)
    later = await ann.submit(session, "two")
    versions = [(await ann.turn(session, turn["turn_id"]))["context_version"] for turn in (queued, later)]
    assert versions == ["v1", "v2"]
    refused = await ann.json("PATCH", path, {"agent_id": "x", "starred": None}, status=422)
    assert {fault["pointer"] for fault in refused["errors"]} == {"/agent_id", "/starred"}


async def test_list_pages_through_ones_own_sessions(stand: HttpStand) -> None:
    ann, bob = stand.client(), stand.client(token=user_token("bob"))
    made = [await ann.create(AGENT) for _ in range(5)]
    await bob.create(AGENT)
    found: list[str] = []
    cursor = ""
    while True:
        page = await ann.json("GET", f"/v1/sessions?limit=2{cursor}")
        found += [item["session_id"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={quote(page['next_cursor'])}"
    assert found == made[::-1]
    for bad in ("x", "AAAA", "%00", "=", "YWJj"):
        assert (await ann.json("GET", f"/v1/sessions?cursor={bad}", status=400))["code"] == "bad_cursor"
    assert (await ann.json("GET", "/v1/sessions?limit=0", status=422))["errors"][0]["pointer"] == "/query/limit"


async def test_r08_a_deleted_id_is_never_used_again(stand: HttpStand) -> None:
    """centrifugal/centrifuge-go#160: an old cursor must not meet another session's events."""
    ann = stand.client()
    body = {"agent_id": AGENT, "external_id": "gone"}
    made = await ann.json("POST", "/v1/sessions", body, status=201)
    running = await ann.submit("gone", "one")
    waiting = await ann.submit("gone", "two")
    claim = await stand.claim(made["session_id"])
    assert claim.turn_id == running["turn_id"]
    await ann.json("DELETE", "/v1/sessions/gone", status=204)
    for rest in ("", "/status", "/turns", "/messages"):
        await ann.json("GET", f"/v1/sessions/gone{rest}", status=404)
    await ann.json("POST", "/v1/sessions/gone/turns", {"input": "x"}, status=404)
    await ann.json("DELETE", "/v1/sessions/gone", status=404)
    assert (await ann.json("POST", "/v1/sessions", body, status=410))["code"] == "session_gone"
    assert (await ann.json("POST", "/v1/sessions", body | {"title": "x"}, status=410))["external_id"] == "gone"
    assert (await ann.json("GET", "/v1/sessions"))["items"] == []
    page = await stand.deps[0].agent.page(made["session_id"], 0, "json")
    assert waiting["turn_id"].encode() in page.body
    assert b'"turn.cancelled"' in page.body
    assert not page.closed
    await stand.finish(claim)
    page = await stand.deps[0].agent.page(made["session_id"], page.last, "json")
    assert page.closed
    assert page.body.count(b"session.closed") == 1
