"""A store that is slow to commit, or whose data are of another version."""

import asyncio
from pathlib import Path
from typing import Any

from tests.support.client import Client
from tests.support.cluster import MORTAL, Clusters
from tests.support.life import finished
from tests.support.statements import Statement, statement_proxy
from tests.support.waiting import eventually

DELAY = 1.0
SERVED = ["look=tests.support.execution_agents:look", "inspector=tests.support.model_agents:inspector"]


async def run(client: Client, agent: str, text: str) -> dict[str, Any]:
    session = await client.create(agent)
    turn = (await client.submit(session, text))["turn_id"]
    return await finished(client, session, turn)


async def test_no_tool_starts_before_its_commit_which_takes_a_second(clusters: Clusters) -> None:
    """Each tool looks into the database for its own start; also three at once."""
    async with clusters.start(serve=SERVED) as cluster:
        (worker,) = cluster.workers
        async with statement_proxy(worker.env["TURNLOG_POSTGRES_WORKER"]) as (proxy, dsn):
            delayed: list[str] = []

            async def late(statement: Statement) -> None:
                if statement.commits:
                    delayed.append(statement.text)
                    await asyncio.sleep(DELAY)

            proxy.before = late
            await worker.restart(TURNLOG_POSTGRES_WORKER=dsn)
            one, three = await asyncio.gather(
                *(run(cluster.client(), agent, cluster.dsn()) for agent in ("look", "inspector"))
            )
            assert len(delayed) >= 4
            await cluster.close()
        assert one["status"] == "completed"
        assert three["output"] == "found 1 found 1 found 1"
        rows = await cluster.fetch("SELECT payload ->> 'output' AS o FROM events WHERE type = 'tool_result.snapshot'")
        assert {row["o"] for row in rows} == {"found 1"}


async def test_a_worker_that_is_too_old_says_so_once_and_serves_what_it_can(clusters: Clusters, tmp_path: Path) -> None:
    """A session whose read models another version writes is left alone, in one clear line; the others go on."""
    served = ["echo=tests.support.agents:echo", "hold=tests.support.agents:hold"]
    async with clusters.start(serve=served, settings=MORTAL) as cluster:
        client = cluster.client()
        old, new = await client.create("echo"), await client.create("hold")
        first = (await client.submit(new, str(tmp_path / "go")))["turn_id"]
        behind = (await client.submit(new, str(tmp_path / "go")))["turn_id"]

        async def runs() -> bool:
            return bool((await client.turn(new, first))["status"] == "running")

        await eventually(runs, "the first turn runs")
        async with cluster.connection() as connection:
            await connection.execute("INSERT INTO projection_generations VALUES ('turns', 2, 99)")
            await connection.execute("UPDATE turns SET generation = 2 WHERE session_id = $1::uuid", new)
            await connection.execute("UPDATE sessions SET turns_generation = 2 WHERE session_id = $1::uuid", new)
        (tmp_path / "go").touch()
        (worker,) = cluster.workers
        assert await worker.wait() == 1, "in the middle of a turn of that session it must end"
        assert worker.text().count("worker.version_mismatch") == 1
        await worker.start()
        again = (await client.submit(old, "still here"))["turn_id"]
        assert (await finished(client, old, again))["output"] == "still here "

        async def told() -> bool:
            return worker.text().count("worker.version_mismatch") == 2

        await eventually(told, "it says so")
        assert "version 1 of turns, the data needs 99" in worker.text()
        assert "Traceback" not in worker.text()
        statuses = await cluster.fetch(
            "SELECT status FROM turns WHERE session_id = $1::uuid ORDER BY enqueue_sequence", new
        )
        assert [row["status"] for row in statuses] == ["running", "queued"], behind
