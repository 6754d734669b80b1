"""Turns over the public API: submit, keys, refusals, list, cancel, interrupt, resume, status, messages."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.client import Client
from tests.support.databases import Databases
from tests.support.gateways import AGENT, HttpStand, http_stand


@pytest.fixture
async def stand(databases: Databases) -> AsyncIterator[HttpStand]:
    async with http_stand(databases) as made:
        yield made


async def _post(client: Client, session: str, body: bytes, **headers: str) -> Any:
    return await client.http.post(f"/v1/sessions/{session}/turns", content=body, headers=headers)


async def test_submit_is_queued_and_can_be_looked_at(stand: HttpStand) -> None:
    ann = stand.client()
    session = await ann.create(AGENT)
    first = await ann.submit(session, "one")
    turn_id = first.pop("turn_id")
    assert first == {"status": "queued", "enqueue_sequence": 1, "sequence": 2, "queue_state": "open"}
    second = await ann.json(
        "POST", f"/v1/sessions/{session}/turns", {"input": [{"type": "text", "text": "two"}]}, status=202
    )
    assert second["enqueue_sequence"] == 2
    turn = await ann.turn(session, turn_id)
    assert turn["input"] == [{"type": "text", "text": "one"}]
    assert (turn["status"], turn["attempt"], turn["first_sequence"], turn["last_sequence"]) == ("queued", 0, 2, 2)
    newest = await ann.json("GET", f"/v1/sessions/{session}/turns?limit=1")
    assert [item["turn_id"] for item in newest["items"]] == [second["turn_id"]]
    rest = await ann.json("GET", f"/v1/sessions/{session}/turns?limit=1&cursor={newest['next_cursor']}")
    assert [item["turn_id"] for item in rest["items"]] == [turn_id]
    assert rest["next_cursor"] is None
    assert (await ann.json("GET", f"/v1/sessions/{session}/turns?status=running"))["items"] == []
    await ann.json("GET", f"/v1/sessions/{session}/turns?status=odd", status=422)
    for bad in ("x", "-1", "9" * 30, "%00"):
        await ann.json("GET", f"/v1/sessions/{session}/turns?cursor={bad}", status=400)


async def test_a_repeated_key_gets_the_first_reply(stand: HttpStand) -> None:
    ann = stand.client()
    session = await ann.create(AGENT)
    path, body = f"/v1/sessions/{session}/turns", {"input": "one"}
    first = await ann.request("POST", path, body, Idempotency_Key="k 1")
    again = await ann.request("POST", path, body, Idempotency_Key="k 1")
    assert (first.status_code, again.status_code, again.content) == (202, 202, first.content)
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    other = await ann.json("POST", path, {"input": "two"}, status=409, Idempotency_Key="k 1")
    assert other["code"] == "idempotency_mismatch"
    # What the gateway fills in does not count: the context version, the turn id.
    await ann.json("PATCH", f"/v1/sessions/{session}", {"context_version": "v2"})
    after = await ann.request("POST", path, body, Idempotency_Key="k 1")
    assert after.content == first.content
    assert (await ann.json("GET", f"/v1/sessions/{session}/status"))["queued"] == 1


async def test_without_a_key_a_retry_is_a_new_turn(stand: HttpStand) -> None:
    ann = stand.client()
    session = await ann.create(AGENT)
    turns = {(await ann.submit(session, "one"))["turn_id"] for _ in range(2)}
    assert len(turns) == 2


async def test_bad_keys_are_refused(stand: HttpStand) -> None:
    ann = stand.client()
    session = await ann.create(AGENT)
    for key in ("", "x" * 256, "ü", "a\tb"):
        answer = await ann.http.post(
            f"/v1/sessions/{session}/turns",
            content=b'{"input":"x"}',
            headers=[(b"Idempotency-Key", key.encode())],
        )
        assert (answer.status_code, answer.json()["code"]) == (422, "bad_idempotency_key"), key


OTHER_SHAPES = [
    (b"", ""),
    (b"{", ""),
    (b"[]", ""),
    (b'{"input":"\\ud800"}', ""),
    (b'{"input":"\xff"}', ""),
    (b"{}", "/input"),
    (b'{"input":5}', "/input"),
    (b'{"input":[]}', "/input"),
    (b'{"input":""}', "/input/0/text"),
    (b'{"input":"a\\u0000b"}', "/input/0/text"),
    (b'{"input":[{"type":"text"}]}', "/input/0/text"),
    (b'{"input":[{"type":"text","text":"a"},{"type":"odd","text":"b"}]}', "/input/1/type"),
    (b'{"input":[{"type":"text","text":"a","more":1}]}', "/input/0/more"),
    (b'{"input":"a","if_busy":"shout"}', "/if_busy"),
    (b'{"input":"a","a/b~c":1}', "/a~1b~0c"),
]


async def test_input_of_another_shape_is_refused_with_a_pointer(stand: HttpStand) -> None:
    ann = stand.client()
    session = await ann.create(AGENT)
    for body, pointer in OTHER_SHAPES:
        answer = await _post(ann, session, body)
        assert answer.status_code == 422, (body, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert problem["type"] == "urn:turnlog:problem:invalid_request"
        assert [fault["pointer"] for fault in problem["errors"]] == [pointer], body
    assert (await ann.json("GET", f"/v1/sessions/{session}/status"))["last_sequence"] == 1


async def test_input_is_bounded(databases: Databases) -> None:
    async with http_stand(databases, limits={"input_bytes": 1000}) as stand:
        ann = stand.client()
        session = await ann.create(AGENT)
        await ann.submit(session, "x" * 900)
        large = await ann.json("POST", f"/v1/sessions/{session}/turns", {"input": "x" * 1000}, status=413)
        assert (large["code"], large["limit"]) == ("input_too_large", 1000)
        # Above what a body can need for that it is not even parsed.
        answer = await _post(ann, session, b"x" * 200_000)
        assert answer.status_code == 413
        assert (await ann.json("GET", f"/v1/sessions/{session}/status"))["queued"] == 1


async def test_a_full_queue_says_when_to_come_back(databases: Databases) -> None:
    async with http_stand(databases, limits={"queue_depth": 2}) as stand:
        ann = stand.client()
        session = await ann.create(AGENT)
        for text in ("one", "two"):
            await ann.submit(session, text)
        answer = await ann.request("POST", f"/v1/sessions/{session}/turns", {"input": "three"})
        assert answer.status_code == 429
        assert int(answer.headers["Retry-After"]) > 0
        assert (answer.json()["code"], answer.json()["depth"]) == ("queue_full", 2)


async def test_too_many_turns_of_one_user_are_refused(databases: Databases) -> None:
    async with http_stand(databases, gateway={"starts_per_minute": 3}) as stand:
        ann = stand.client()
        session = await ann.create(AGENT)
        statuses = [
            (await ann.request("POST", f"/v1/sessions/{session}/turns", {"input": "x"})).status_code for _ in range(5)
        ]
        assert statuses == [202, 202, 202, 429, 429]


async def test_if_busy(stand: HttpStand) -> None:
    ann = stand.client()
    session = await ann.create(AGENT)
    path = f"/v1/sessions/{session}/turns"
    first = await ann.json("POST", path, {"input": "one", "if_busy": "reject"}, status=202)
    busy = await ann.json("POST", path, {"input": "two", "if_busy": "reject"}, status=409)
    assert (busy["code"], busy["active_turn_id"]) == ("session_busy", first["turn_id"])
    claim = await stand.claim(session)
    urgent = await ann.json("POST", path, {"input": "now", "if_busy": "interrupt"}, status=202)
    await stand.finish(claim)
    assert (await ann.turn(session, first["turn_id"]))["status"] == "interrupted"
    status = await ann.json("GET", f"/v1/sessions/{session}/status")
    assert (status["queue_state"], status["queued"]) == ("open", 1)
    assert (await ann.turn(session, urgent["turn_id"]))["status"] == "queued"


async def test_cancel_and_interrupt(stand: HttpStand) -> None:
    ann = stand.client()
    session = await ann.create(AGENT)
    path = f"/v1/sessions/{session}/turns"
    running, waiting = await ann.submit(session, "one"), await ann.submit(session, "two")
    claim = await stand.claim(session)
    refused = await ann.json("POST", f"{path}/{running['turn_id']}/cancel", status=409)
    assert (refused["code"], refused["turn_status"]) == ("turn_not_cancellable", "running")
    cancelled = await ann.json("POST", f"{path}/{waiting['turn_id']}/cancel")
    assert (cancelled["turn_id"], cancelled["status"]) == (waiting["turn_id"], "cancelled")
    await ann.json("POST", f"{path}/{waiting['turn_id']}/cancel", status=409)
    await ann.json("POST", f"{path}/{waiting['turn_id']}/interrupt", status=409)
    stopping = await ann.json("POST", f"{path}/{running['turn_id']}/interrupt", status=202)
    assert stopping["interrupt_requested"] is True
    await ann.json("POST", f"{path}/{running['turn_id']}/interrupt", status=202)
    await stand.finish(claim)
    assert (await ann.turn(session, running["turn_id"]))["status"] == "interrupted"
    for absent in ("0190a000-0000-7000-8000-000000000000", "nothing", "a%00b", "%20"):
        for method, rest in (("GET", ""), ("POST", "/cancel"), ("POST", "/interrupt")):
            assert (await ann.request(method, f"{path}/{absent}{rest}")).status_code == 404


async def test_a_failed_turn_pauses_the_queue_until_resume(stand: HttpStand) -> None:
    ann = stand.client()
    session = await ann.create(AGENT)
    await ann.json("POST", f"/v1/sessions/{session}/resume", status=409)
    await ann.submit(session, "one")
    await ann.submit(session, "two")
    await stand.finish(await stand.claim(session), outcome="failed", output=None)
    status = await ann.json("GET", f"/v1/sessions/{session}/status")
    assert status == {
        "chat_status": "human",
        "queue_state": "paused",
        "active_turn_id": None,
        "queued": 1,
        "last_sequence": status["last_sequence"],
        "epoch": 1,
        "active_status": None,
        "closed": False,
    }
    assert (await ann.submit(session, "three"))["queue_state"] == "paused"
    resumed = await ann.json("POST", f"/v1/sessions/{session}/resume")
    assert (resumed["queue_state"], resumed["chat_status"], resumed["queued"]) == ("open", "agent", 2)
    assert (await stand.claim(session)).attempt == 1


async def test_messages_wait_for_a_sequence(stand: HttpStand) -> None:
    ann = stand.client()
    session = await ann.create(AGENT)
    for text in ("one", "two", "three"):
        queued = await ann.submit(session, text)
    path = f"/v1/sessions/{session}/messages"
    page = await ann.json("GET", f"{path}?limit=2&min_sequence={queued['sequence']}")
    assert page["as_of_sequence"] == queued["sequence"]
    assert [message["parts"][0]["text"] for message in page["items"]] == ["two", "three"]
    earlier = await ann.json("GET", f"{path}?before={page['next_cursor']}")
    assert [message["parts"][0]["text"] for message in earlier["items"]] == ["one"]
    waiting = asyncio.create_task(ann.json("GET", f"{path}?min_sequence={queued['sequence'] + 1}"))
    await ann.submit(session, "four")
    assert len((await waiting)["items"]) == 4
    late = await ann.json("GET", f"{path}?min_sequence=1000", status=504)
    assert (late["code"], late["min_sequence"]) == ("min_sequence_timeout", 1000)
    for bad in ("x", "1", "1.x", "9" * 40 + ".1", "%00"):
        await ann.json("GET", f"{path}?before={bad}", status=400)


async def test_agents_are_listed(stand: HttpStand) -> None:
    assert await stand.client().json("GET", "/v1/agents") == [{"agent_id": AGENT, "name": "Echo", "component": "agent"}]
