"""A native EventSource gives up for good on any status but 200, so whatever is away, a stream is answered with a 200
that says when to come back; and the ticket, or a cookie in its place, is still good then."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import SecretStr

from infra.postgres.registrations import RegistrationsUnavailable
from services.gateway.app import create_app
from services.gateway.deps import GatewayDeps
from services.gateway.sse.limits import Limits
from tests.support.client import Client
from tests.support.databases import Databases
from tests.support.gate import Gate, database_gate, gate
from tests.support.gateways import AGENT, Served, gateway_deps, http_stand, user_token
from tests.support.sse import Stream


@dataclass
class Stand:
    """One gateway whose ways to its database and to the agent service are gates."""

    client: Client
    anybody: Client
    deps: GatewayDeps
    database: Gate
    agent: Gate
    session: str

    def browser(self, ticket: str, **headers: str) -> Stream:
        """An EventSource's request; which cookie it sends, the test says."""
        self.anybody.http.cookies.clear()
        return self.anybody.stream(f"{self.session}/events?ticket={ticket}#", None, **headers)

    @contextmanager
    def away(self, gate: Gate, *, hangs: bool = False) -> Iterator[None]:
        """Cut off while the block runs, and not waited for long."""
        self.deps.hub.limits = Limits(attach_seconds=0.3)
        gate.freeze() if hangs else gate.shut()
        try:
            yield
        finally:
            gate.shut()
            gate.open()
            self.deps.hub.limits = Limits()

    async def ticket(self) -> str:
        made = await self.client.json("POST", f"/v1/sessions/{self.session}/stream-ticket", status=201)
        ticket: str = made["ticket"]
        return ticket


@asynccontextmanager
async def stood(databases: Databases) -> AsyncIterator[Stand]:
    async with http_stand(databases) as base:
        session = await base.client().create(AGENT)
        dsn = base.settings.postgres.gateway
        assert dsn is not None
        port = int(base.agents[0].rpartition(":")[2])
        async with database_gate(dsn.get_secret_value()) as (database, through), gate("127.0.0.1", port) as agent:
            postgres = base.settings.postgres.model_copy(update={"gateway": SecretStr(through)})
            settings = base.settings.model_copy(update={"postgres": postgres})
            async with (
                gateway_deps(settings, [f"http://127.0.0.1:{agent.port}"]) as deps,
                Served(create_app(deps)).running() as served,
            ):
                client, anybody = Client(served.url, user_token()), Client(served.url)
                try:
                    yield Stand(client, anybody, deps, database, agent, session)
                finally:
                    await client.close()
                    await anybody.close()


@pytest.fixture
async def stand(databases: Databases) -> AsyncIterator[Stand]:
    async with stood(databases) as made:
        yield made


async def told_to_come_back(stream: Stream, reason: str = "overloaded") -> Stream:
    """The answer that an EventSource comes back after, its cursor unchanged."""
    await stream.end()
    assert stream.status == 200
    assert [(frame.event, frame.id, frame.json) for frame in stream.frames] == [
        ("stream.closing", None, {"reason": reason})
    ]
    assert 5000 <= stream.parser.retries[0] <= 15000
    assert stream.headers["cache-control"] == "no-cache, no-transform"
    return stream


async def opens(stream: Stream) -> None:
    await stream.opened()
    assert stream.frames[0].event == "stream.open"
    await stream.close()


async def test_d16_whatever_is_away_a_stream_is_told_to_come_back(stand: Stand) -> None:
    for one in (stand.database, stand.agent):
        ticket = await stand.ticket()
        await opens(stand.client.stream(stand.session, 0))
        with stand.away(one):
            await told_to_come_back(stand.client.stream(stand.session, 0))
            refused = await told_to_come_back(stand.browser(ticket))
            # What is no stream is told the truth.
            page = await stand.client.request("GET", f"/v1/sessions/{stand.session}/events", Accept="application/json")
            assert (page.status_code, page.headers["content-type"]) == (503, "application/problem+json")
        cookie = refused.headers.get("set-cookie", "").partition(";")[0]
        await opens(stand.browser(ticket, Cookie=cookie))
    # One that hangs is not waited for either.
    with stand.away(stand.database, hangs=True):
        await told_to_come_back(stand.client.stream(stand.session, 0))
    await opens(stand.client.stream(stand.session, 0))


async def test_d15_a_ticket_is_never_lost_to_an_answer_that_opens_nothing(stand: Stand) -> None:
    """The client comes back with the same URL, and with what the answer has set."""
    # The agent service is away at the attach: the ticket is spent by then.
    ticket = await stand.ticket()
    with stand.away(stand.agent):
        refused = await told_to_come_back(stand.browser(ticket))
    assert f"Path=/v1/sessions/{stand.session}/events; " in refused.headers["set-cookie"]
    await opens_by_cookie(stand, ticket, refused)

    # The database has spent it, and its answer is lost.
    ticket, real = await stand.ticket(), stand.deps.passes._passes

    class Losing:
        async def spend(self, *spending: Any) -> object:
            await real.spend(*spending)
            raise RegistrationsUnavailable()

    stand.deps.passes._passes = Losing()  # type: ignore[assignment]
    refused = await told_to_come_back(stand.browser(ticket))
    stand.deps.passes._passes = real
    await opens_by_cookie(stand, ticket, refused)

    # A fault behind the attach is no end either, such as an answer of another version that cannot be read.
    async def unreadable(*_: object) -> object:
        raise ValueError("not an answer")

    stand.deps.hub.inquiry._agent.heads = unreadable  # type: ignore[method-assign, assignment]
    await told_to_come_back(stand.client.stream(stand.session, 0))


async def opens_by_cookie(stand: Stand, ticket: str, refused: Stream) -> None:
    assert (await stand.browser(ticket).opened()).status == 401
    await opens(stand.browser(ticket, Cookie=refused.headers["set-cookie"].partition(";")[0]))
