"""X08 (langgraph#3660): whatever is left out, or sent in another form, of cancel, interrupt, continue, fork, regenerate
and resume: an answer that was meant, never a 5xx."""

import itertools
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.support.client import Client
from tests.support.databases import Databases
from tests.support.gateways import AGENT, HttpStand, http_stand

ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    "",
    "x",
    "é" * 3_000,
    "\u0000",
    [],
    [None],
    {},
    {"a": {"b": [1]}},
)
"""What may stand where something optional does."""

BODIES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "cancel": ({}, ("reason",)),
    "interrupt": ({}, ("then",)),
    "continue": ({"answers": [{"tool_call_id": "c"}]}, ("answers",)),
    "fork": ({"from": "end"}, ("from", "input")),
    "regenerate": ({}, ("replace_original", "additional_instructions")),
}
"""By route: the least that a body must say, and what else may stand in it."""

ANSWER = ("item_id", "approved", "note", "arguments", "result")

HEADERS: tuple[dict[str, str], ...] = (
    {},
    {"Idempotency-Key": "k" * 255},
    {"Idempotency-Key": "k" * 256},
    {"Idempotency-Key": ""},
    {"Content-Type": "text/plain"},
    {"Content-Type": "application/json; charset=latin-1"},
)


@pytest.fixture
async def stand(databases: Databases) -> AsyncIterator[HttpStand]:
    async with http_stand(databases, gateway={"starts_per_minute": 1_000_000}) as made:
        yield made


def bodies_of(route: str) -> list[bytes]:
    """No body, an empty one, no JSON, and the least one with each optional part in each odd form."""
    least, parts = BODIES[route]
    made: list[bytes] = [b"", b"{}", b"null", b"[]", b'"x"', b"{", b"\xff", b'{"a":1}', msgspec.json.encode(least)]
    made += [msgspec.json.encode({**least, part: odd}) for part, odd in itertools.product(parts, ODD)]
    if route == "continue":
        for part, odd in itertools.product(ANSWER, ODD):
            made.append(msgspec.json.encode({"answers": [{"tool_call_id": "c", part: odd}]}))
    return made


async def turns_of(stand: HttpStand, ann: Client) -> dict[str, tuple[str, str]]:
    """A session and a turn in each state, by state."""
    made: dict[str, tuple[str, str]] = {}
    for state in ("queued", "running", "completed", "failed"):
        session = await ann.create(AGENT)
        turn = (await ann.submit(session, "hello"))["turn_id"]
        if state != "queued":
            claim = await stand.claim(session)
            if state == "completed":
                await stand.finish(claim)
            elif state == "failed":
                await ann.submit(session, "waits")
                await stand.finish(claim, outcome="failed", error={"code": "agent_error", "message": "x"}, output=None)
        made[state] = (session, turn)
    return made


async def test_x08_everything_optional_left_out_or_odd(stand: HttpStand) -> None:
    ann = stand.client()
    seen: Counter[int] = Counter()
    for half, (state, (session, turn)) in enumerate((await turns_of(stand, ann)).items()):
        for route in BODIES:
            path = f"/v1/sessions/{session}/turns/{turn}/{route}"
            for number, body in enumerate(bodies_of(route)[half % 2 :: 2]):
                headers = HEADERS[number % len(HEADERS)]
                answer = await ann.http.request("POST", path, content=body, headers=headers)
                assert answer.status_code < 500, (state, route, body, headers, answer.text)
                kind = answer.headers["content-type"]
                assert answer.is_success or kind == "application/problem+json", (state, route, body, answer.text)
                seen[answer.status_code] += 1
        for body in (b"", b"{}", b"null", b'{"by":1}'):
            answer = await ann.http.request("POST", f"/v1/sessions/{session}/resume", content=body)
            assert answer.status_code < 500, (state, body, answer.text)
    assert {200, 202, 409, 422} <= set(seen), seen


@pytest.mark.parametrize("name", ["limit", "cursor", "status", "before", "after", "min_sequence", "after_sequence"])
async def test_x08_queries_left_out_or_odd(stand: HttpStand, name: str) -> None:
    ann = stand.client()
    session = await ann.create(AGENT)
    await ann.submit(session, "hello")
    for path in ("", "/turns", "/messages", "/events", "/status", "/hooks"):
        for odd in ("", "0", "1", "-1", "x", "1e3", "9" * 30, "%00", "null", "٣", "a" * 3_000):
            if (name, path) == ("min_sequence", "/messages") and odd in ("1e3", "9" * 30):
                continue  # is waited for
            answer = await ann.request("GET", f"/v1/sessions/{session}{path}?{name}={odd}", Accept="application/json")
            assert answer.status_code < 500, (path, name, odd, answer.text)
