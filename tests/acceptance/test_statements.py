"""Processes are killed at a statement of their choice's transaction, and reads are held between claim and history."""

import asyncio
import itertools
from typing import Any

import pytest

from tests.support.agents import remembered
from tests.support.client import Client
from tests.support.cluster import MORTAL, Cluster, Clusters
from tests.support.processes import RoleProcess
from tests.support.sse import assert_gapless
from tests.support.statements import Cut, Statement, StatementProxy, statement_proxy
from tests.support.waiting import PATIENCE, eventually

ECHO = "echo=tests.support.agents:echo"
REMEMBER = "remember=tests.support.agents:remember"


async def through(proxied: str, process: RoleProcess, cluster: Cluster) -> None:
    """Restart the process with its database behind the proxy."""
    await process.restart(**{f"TURNLOG_POSTGRES_{process.role.upper()}": proxied})
    await cluster.ready()


def dsn_of(process: RoleProcess) -> str:
    return process.env[f"TURNLOG_POSTGRES_{process.role.upper()}"]


async def whole(cluster: Cluster, session: str, key: str) -> bool:
    """Whether there is a turn with that key: its row, its event and its kept reply. Fails where there are only some."""
    (row,) = await cluster.fetch(
        """SELECT (SELECT count(*) FROM turns WHERE session_id = $1::uuid AND idempotency_key = $2) AS turns,
                  (SELECT count(*) FROM messages AS m JOIN turns AS t USING (session_id, turn_id)
                   WHERE m.session_id = $1::uuid AND t.idempotency_key = $2 AND m.role = 'user') AS inputs,
                  (SELECT count(*) FROM events WHERE session_id = $1::uuid AND type = 'turn.queued'
                   AND payload ->> 'idempotency_key' = $2) AS events,
                  (SELECT count(*) FROM command_log WHERE session_id = $1::uuid
                   AND idempotency_key LIKE '%' || $2) AS replies""",
        session,
        key,
    )
    assert len(set(row.values())) == 1, (key, dict(row))
    return bool(row["turns"])


class Killer:
    """Kills a process at the n-th statement of its next transaction."""

    def __init__(self, proxy: StatementProxy, victim: RoleProcess) -> None:
        self.died = asyncio.Event()
        self.last: Statement | None = None
        """The last one that the server has executed before the death."""
        self._victim = victim
        self._at: int | None = None
        self._seen: dict[int, int] = {}
        proxy.before = self._before
        proxy.after = self._after

    def arm(self, at: int) -> None:
        """0 is before the first statement, n after the n-th and before the next one."""
        self._at, self.last = at, None
        self._seen.clear()
        self.died.clear()

    async def _before(self, statement: Statement) -> None:
        if self._at == 0 and statement.in_transaction:
            await self._kill()

    async def _after(self, statement: Statement) -> None:
        if self._at is None or not statement.in_transaction:
            return
        seen = self._seen[statement.connection] = self._seen.get(statement.connection, 0) + 1
        if seen == self._at:
            self.last = statement
            await self._kill()

    async def _kill(self) -> None:
        self._at = None
        await self._victim.kill()
        self.died.set()
        raise Cut


async def test_e03_c08_the_agent_is_killed_after_every_statement_of_a_submit(clusters: Clusters) -> None:
    """aegra/aegra#501: input, turn, event and kept reply are there together or not at all, wherever kill -9 comes; the
    same request then finds the turn or makes it, once. After COMMIT is between commit and reply (C08)."""
    async with clusters.start(serve=[ECHO], workers=1, settings={"TURNLOG_AGENT_UNAVAILABLE_SECONDS": "20"}) as cluster:
        (agent,) = cluster.agents
        client = cluster.client()
        session = await client.create("echo")
        await cluster.workers[0].kill()
        async with statement_proxy(dsn_of(agent)) as (proxy, proxied):
            await through(proxied, agent, cluster)
            killer = Killer(proxy, agent)
            for point in itertools.count():
                key = f"at-{point}"
                killer.arm(point)
                asked = asyncio.create_task(client.submit(session, key, key))
                await asyncio.wait_for(killer.died.wait(), PATIENCE)
                await eventually(lambda: _none_open(cluster), "the transaction is over")
                committed = killer.last is not None and killer.last.commits
                assert await whole(cluster, session, key) == committed, killer.last
                await agent.start()
                reply = await asked
                assert await whole(cluster, session, key)
                assert await client.submit(session, key, key) == reply
                assert reply["enqueue_sequence"] == point + 1
                if committed:
                    break
            assert point >= 5
            other = await client.request(
                "POST", f"/v1/sessions/{session}/turns", {"input": "x"}, Idempotency_Key="at-1"
            )
            assert other.status_code == 409
        assert await cluster.check(all_terminal=False) == []


async def _none_open(cluster: Cluster) -> bool:
    rows = await cluster.fetch(
        """SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
           AND state LIKE 'idle in transaction%' AND usename LIKE '%agent%'"""
    )
    return not rows


@pytest.mark.soak
async def test_e03_k11_a_worker_is_killed_after_every_statement(clusters: Clusters) -> None:
    """langgraph#8764: from its claim to the end of its turn, wherever kill -9 comes: the turn ends, once."""
    async with clusters.start(serve=[ECHO], workers=1, settings=MORTAL) as cluster:
        (worker,) = cluster.workers
        client = cluster.client()
        async with statement_proxy(dsn_of(worker)) as (proxy, proxied):
            await through(proxied, worker, cluster)
            killer = Killer(proxy, worker)
            point = 0
            while True:
                point += 1
                session = await client.create("echo")
                killer.arm(point)
                turn = (await client.submit(session, "one two"))["turn_id"]
                died = asyncio.create_task(killer.died.wait())
                ended = asyncio.create_task(_ended(client, session, turn))
                await asyncio.wait([died, ended], return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
                if not killer.died.is_set():
                    died.cancel()
                    assert await ended == "completed"
                    break
                await worker.start()
                assert await ended == "completed", point
                assert_gapless([event["sequence"] for event in await client.events(session)])
        assert point > 15
        assert await cluster.check() == []


async def _ended(client: Client, session: str, turn: str) -> str:
    async def status() -> str | None:
        seen = await client.turn(session, turn)
        return str(seen["status"]) if seen["finished_at"] else None

    return await eventually(status, "the turn ends") or ""


async def test_c04_the_past_is_read_after_the_claim(clusters: Clusters) -> None:
    """agentscope#2226: a claim and what it reads are held up at every statement in turn, while the turn before ends or
    more is submitted: turn k's prompt has turn k-1's result, and nothing of what was queued behind it."""
    async with clusters.start(serve=[REMEMBER], workers=2) as cluster:
        client = cluster.client()
        holder, other = cluster.workers
        async with statement_proxy(dsn_of(holder)) as (proxy, proxied):
            await through(proxied, holder, cluster)
            await other.kill()
            session = await client.create("remember")
            seen: list[str] = []

            async def submit_meanwhile(statement: Statement) -> None:
                """Before each of the worker's reads and transactions another turn is accepted."""
                if len(seen) < 12 and (not statement.in_transaction or statement.text.startswith("BEGIN")):
                    seen.append(statement.text)
                    await client.submit(session, f"u{len(seen) + 1}")

            proxy.before = submit_meanwhile
            await client.submit(session, "u1")
            await eventually(lambda: _enough(seen), "twelve statements were held up")
            await assert_prompts(cluster, client, session, 13)
        await other.start()


async def _enough(seen: list[str]) -> bool:
    return len(seen) == 12


async def assert_prompts(cluster: Cluster, client: Client, session: str, count: int) -> None:
    """Every turn was told exactly of those before it, in order."""

    async def all_ended() -> list[Any] | None:
        turns = (await client.json("GET", f"/v1/sessions/{session}/turns?limit=100"))["items"]
        ended = [turn for turn in turns if turn["finished_at"]]
        return sorted(ended, key=lambda turn: turn["enqueue_sequence"]) if len(ended) == count else None

    turns = await eventually(all_ended, "all turns end") or []
    past: list[list[str]] = []
    for turn in turns:
        assert turn["status"] == "completed", turn
        prompt = [*past, ["user", turn["input"][0]["text"]]]
        assert turn["output"] == remembered(prompt), turn["enqueue_sequence"]
        past = [*prompt, ["assistant", turn["output"]]]
    assert await cluster.check() == []
