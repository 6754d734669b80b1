"""The broker lost everything in mid-item and the agent says nothing more: those who join see what was said all the
same."""

from pathlib import Path

import pytest

from tests.support.client import terminal
from tests.support.cluster import Clusters, streams_made
from tests.support.reducer import view
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(60)

HOLD = "hold=tests.support.agents:hold"


async def test_who_joins_a_silent_turn_after_the_broker_was_wiped_sees_what_was_said(
    clusters: Clusters, tmp_path: Path
) -> None:
    """One turn spoke while the broker was there, the other while it was away: the roll-ups of both went to no stream
    that is left."""
    async with clusters.start(gateways=2, serve=[HOLD], own_nats=1) as cluster:
        await streams_made(cluster)
        a, b = cluster.client(0), cluster.client(1)
        go = tmp_path / "go"
        before, meanwhile = await a.create("hold"), await a.create("hold")
        turns = [(await a.submit(before, str(go)))["turn_id"]]
        watching = a.stream(before, 0)
        await watching.until(lambda: view(watching.frames).text() == "holding ", what="the text so far")
        await cluster.wipe_nats()
        turns.append((await a.submit(meanwhile, str(go)))["turn_id"])

        async def runs() -> bool:
            return bool((await a.turn(meanwhile, turns[1]))["status"] == "running")

        await eventually(runs, "the second turn runs")
        await cluster.nats.start()
        await streams_made(cluster)
        for session, turn in zip((before, meanwhile), turns, strict=True):
            # At the gateway where nobody has looked at these sessions: what it knows it has from the broker.
            joining = b.stream(session, 0)
            await joining.until(lambda seen=joining: view(seen.frames).text() == "holding ", what="what was said")  # type: ignore[misc]
            assert not go.exists()
            assert (await b.turn(session, turn))["status"] == "running"
        go.touch()
        for session, turn in zip((before, meanwhile), turns, strict=True):
            stream = b.stream(session, 0)
            assert (await terminal(stream, turn)).event == "turn.completed"
            assert view(stream.frames).text() == "holding done"
        assert await cluster.check() == []
