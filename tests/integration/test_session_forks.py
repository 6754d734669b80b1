"""`POST …/sessions/{id}/fork`: a session of its own with what had been said, files included; also after a crash."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from domain.commands import CreateSession, EraseSession
from domain.ids import CommandKey, Sequence, SessionId
from infra.postgres.registrations import NewRegistration, Owner
from infra.postgres.session_copies import PostgresSessionCopies, SessionCopy
from services.cli.auditing import audit_database
from services.gateway import registering
from services.gateway.sweeper import Sweeper
from tests.acceptance.agentos.caller import Caller
from tests.support.databases import Databases
from tests.support.gateways import AGENT, HttpStand, http_stand, user_token

RUNS, FORK = f"/agents/{AGENT}/runs", f"/agents/{AGENT}/sessions/s/fork"


@pytest.fixture
async def stand(databases: Databases) -> AsyncIterator[HttpStand]:
    async with http_stand(databases, gateways=2) as made:
        yield made


@pytest.fixture
async def ann(stand: HttpStand) -> AsyncIterator[Caller]:
    async with Caller(stand.gateways[0] + "/agentos", {"Authorization": f"Bearer {user_token()}"}) as made:
        yield made


async def said(stand: HttpStand, caller: Caller, *messages: str, files: Any = None) -> SessionId:
    """Runs of the session `s` that are over; the session's id."""
    for message in messages:
        form = {"message": message, "session_id": "s", "background": "true", "stream": "false"}
        answer = await caller.http.post(RUNS, data=form, files=files)
        assert answer.status_code == 202, answer.text
        session = SessionId((await stand.client().json("GET", "/v1/sessions/s"))["session_id"])
        await stand.finish(await stand.claim(session), output=f"answer to {message}")
    return session


async def clean(stand: HttpStand) -> None:
    totals = await audit_database(stand.settings.dsn("agent"), None, 1, lambda _: None)
    assert totals.findings == []


async def test_a_fork_has_the_runs_under_new_ids_and_goes_its_own_way(stand: HttpStand, ann: Caller) -> None:
    content = b"what is in it"
    source = await said(stand, ann, "one", "two", files=[("files", ("a.txt", content, "text/plain"))])
    waiting = await ann.begin(AGENT, "three", "s")
    before = await stand.client().events("s")
    answer = await ann.http.post(FORK)
    assert answer.status_code == 200, answer.text
    fork = answer.json()["session_id"]
    assert answer.json() == {"session_id": fork, "forked_from_session_id": "s"}
    assert await stand.client().events("s") == before
    runs = (await ann.get(f"/sessions/{fork}/runs", type="agent")).json()
    theirs = (await ann.get("/sessions/s/runs", type="agent")).json()
    assert [one["run_input"] for one in runs] == ["one", "two"]
    assert [one["content"] for one in runs] == ["answer to one", "answer to two"]
    assert {one["forked_from_session_id"] for one in runs} == {"s"}
    assert not {one["run_id"] for one in runs} & {one["run_id"] for one in theirs}
    assert runs[0]["messages"][0]["files"][0]["filename"] == "a.txt"
    assert (await ann.get(f"/sessions/{fork}", type="agent")).json()["session_name"] == "one"
    # Each goes on by itself, and can be branched inside itself.
    assert waiting not in str(runs)
    await ann.begin(AGENT, "four", fork)
    await clean(stand)
    # The copy keeps its file when the source is erased, and the file goes with the last of them.
    claim = await stand.claim(source)
    await stand.finish(claim)
    await stand.pipeline.execute(EraseSession(session_id=source, key=CommandKey("e"), by="ann"))
    blobs = await stand.deps[0].agent.known_blobs([hashlib.sha256(content).hexdigest()])
    assert len(blobs) == 1
    assert (await ann.get(f"/sessions/{fork}/runs", type="agent")).json()[0]["content"] == "answer to one"
    await clean(stand)
    assert (await ann.http.post(FORK)).json() == {"detail": "Source session has no runs to fork."}


async def test_what_cannot_be_forked(stand: HttpStand, ann: Caller) -> None:
    nothing = {"detail": "Source session has no runs to fork."}
    answer = await ann.http.post(FORK)
    assert (answer.status_code, answer.json()) == (400, nothing)
    assert (await ann.http.post("/agents/nobody/sessions/s/fork")).status_code == 404
    assert (await ann.http.post(f"/teams/{AGENT}/sessions/s/fork")).status_code == 404
    await ann.begin(AGENT, "waits", "s")
    answer = await ann.http.post(FORK)
    assert (answer.status_code, answer.json()) == (400, nothing)
    await said(stand, ann, "over")
    bob = {"Authorization": f"Bearer {user_token('bob')}"}
    answer = await ann.http.post(FORK, headers=bob)
    assert (answer.status_code, answer.json()) == (400, nothing)
    assert (await ann.http.post(FORK)).status_code == 200


async def test_a_copy_that_was_broken_off_is_gone_on_with(stand: HttpStand, ann: Caller) -> None:
    """The gateway died after it had noted the copy, or after the agent service had begun it; many go on at once."""
    source = await said(stand, ann, "one", "two")
    deps = stand.deps[0]
    head = (await deps.agent.heads([source])).heads[source].last_sequence
    new = SessionId(stand.ids.uuid7())
    await PostgresSessionCopies(deps.registrations.pool).note(new, SessionCopy(source, Sequence(head)))
    registration, _ = await deps.registrations.begin(
        NewRegistration(session_id=new, owner=Owner("ann"), agent_id=AGENT, fingerprint=registering.copy_mark(new))
    )
    await deps.agent.execute(CreateSession(session_id=new, key=CommandKey(f"create:{new}"), by="ann", agent_id=AGENT))
    await asyncio.gather(*(registering.start(one.agent, one.registrations, registration) for one in stand.deps * 3))
    assert await Sweeper(deps.agent, deps.registrations, deps.ids, 0.0).sweep() == 1
    runs = (await ann.get(f"/sessions/{new}/runs", type="agent")).json()
    assert [one["run_input"] for one in runs] == ["one", "two"]
    await clean(stand)
    # Nobody can have another session copied by saying so.
    made = await stand.client().json(
        "POST", "/v1/sessions", {"agent_id": AGENT, "metadata": {"copied_from": source}}, status=201
    )
    assert [event["type"] for event in await stand.client().events(made["session_id"])] == ["session.created"]


async def test_a_copy_whose_source_is_erased_meanwhile_leaves_nothing(stand: HttpStand, ann: Caller) -> None:
    source = await said(stand, ann, "one")
    deps = stand.deps[0]
    new = SessionId(stand.ids.uuid7())
    await PostgresSessionCopies(deps.registrations.pool).note(new, SessionCopy(source, Sequence(99)))
    await deps.registrations.begin(
        NewRegistration(session_id=new, owner=Owner("ann"), agent_id=AGENT, fingerprint=registering.copy_mark(new))
    )
    await stand.pipeline.execute(EraseSession(session_id=source, key=CommandKey("e"), by="ann"))
    await Sweeper(deps.agent, deps.registrations, deps.ids, 0.0).sweep()
    found = await deps.registrations.get(new)
    assert found is not None
    assert found.state == "failed"
    left = (await deps.agent.page(new, 0, "json")).body
    events = msgspec.json.decode(b"[" + left + b"]")
    assert [event["type"] for event in events] == ["session.created", "session.closed", "session.erased"]
