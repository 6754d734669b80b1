"""Two releases at once: both serve what both can write; of what only the newer can write the older keeps its hands off,
and says so in one line."""

import asyncio
from pathlib import Path
from typing import Any

from services.projector.generations import choose, rebuild_pool
from services.projector.session_rebuild import SessionRebuild
from tests.support.client import Client, finished
from tests.support.cluster import MORTAL, Cluster, Clusters
from tests.support.life import owner_of
from tests.support.next_release import NextMessages, session_projections
from tests.support.waiting import eventually

SERVED = ["echo=tests.support.agents:echo", "hold=tests.support.agents:hold"]
NEXT = {"TESTS_RELEASE": "tests.support.next_release"}


async def said(client: Client, session: str, text: str) -> dict[str, Any]:
    return await finished(client, session, (await client.submit(session, text))["turn_id"])


async def test_a_release_is_rolled_out_while_turns_go_on(clusters: Clusters, tmp_path: Path) -> None:
    async with clusters.start(agents=2, workers=2, serve=SERVED, settings=MORTAL) as cluster:
        client, go = cluster.client(), tmp_path / "go"
        (old_agent, new_agent), (old, new) = cluster.agents, cluster.workers
        session, held = await client.create("echo"), await client.create("hold")
        await asyncio.gather(new.restart(**NEXT), new_agent.restart(**NEXT))
        await cluster.ready()
        # Before the rebuild either of them writes every session.
        for frozen, at_work in ((old, new), (new, old)):
            frozen.freeze()
            assert (await said(client, session, "both"))["status"] == "completed"
            assert session in at_work.lately()
            frozen.thaw()
        new.freeze()
        turn = (await client.submit(held, str(go)))["turn_id"]
        assert await owner_of(cluster, turn) is old
        new.thaw()
        await rebuild(cluster)
        # In the middle of a turn of which it can write nothing more the older worker ends; the newer one goes on.
        go.touch()
        assert await old.wait() == 1
        assert told(old.lately()) == 1
        ended = await finished(client, held, turn)
        assert (ended["status"], ended["output"]) == ("completed", "holding done")
        assert ended["attempt"] >= 2
        # What is left of the older release refuses, and its neighbours do the work.
        await old.start()
        born = await client.create("echo")

        async def both_told() -> bool:
            # Until each of them has had its chance at what it must leave alone.
            for one in (session, born):
                assert (await said(client, one, "newer only"))["status"] == "completed"
            return told(old_agent.lately()) > 0 and told(old.lately()) > 0

        await eventually(both_told, "each of the older release says so")
        for _ in range(4):
            assert (await said(client, session, "newer only"))["status"] == "completed"
        assert (told(old_agent.lately()), told(old.lately())) == (1, 1), "once"
        assert "version 1 of messages, the data needs 2" in old_agent.lately()
        assert "Traceback" not in old_agent.lately() + old.lately()
        assert await cluster.check() == []


async def rebuild(cluster: Cluster) -> None:
    """`turnlog rebuild messages` of the newer release."""
    pool = await rebuild_pool(cluster.workers[0].env["TURNLOG_POSTGRES_WORKER"], size=4)
    try:
        target = await choose(pool, session_projections(), "messages", rollback=False)
        report = await SessionRebuild(pool, NextMessages(), target, accept=False).run()
    finally:
        await pool.close()
    assert (report.flipped, report.differences) == (2, [])


def told(text: str) -> int:
    return sum(".version_mismatch" in line for line in text.splitlines())
