"""The broker lost everything in mid-item and the agent says nothing more: those who join see what was said all the
same."""

from contextlib import suppress
from pathlib import Path

import nats
import pytest
from nats.js.errors import NotFoundError

from infra.nats.subjects import Subjects, inbox_prefix
from tests.support.client import terminal
from tests.support.cluster import Cluster, Clusters, streams_made
from tests.support.reducer import view
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(120)

HOLD = "hold=tests.support.agents:hold"


async def rolled_up(cluster: Cluster, session: str) -> None:
    """Wait until LIVE holds the roll-up of that session's open item, and with it nothing is due any more."""
    user, password = cluster.nats.credentials("operator", namespace=cluster.namespace)
    inbox = inbox_prefix(cluster.namespace, "operator").encode()
    broker = await nats.connect(cluster.nats.url, user=user, password=password, inbox_prefix=inbox)
    live = Subjects(cluster.namespace).live_stream
    try:

        async def there() -> bool:
            with suppress(NotFoundError):
                subject = f"{cluster.namespace}.session.{session}.live.*"
                newest = await broker.jetstream().get_last_msg(live, subject)
                return "Nats-Rollup" in (newest.headers or {})
            return False

        await eventually(there, "the open item is rolled up in LIVE")
    finally:
        await broker.close()


async def test_who_joins_a_silent_turn_after_the_broker_was_wiped_sees_what_was_said(
    clusters: Clusters, tmp_path: Path
) -> None:
    async with clusters.start(serve=[HOLD], own_nats=1) as cluster:
        await streams_made(cluster)
        client, go = cluster.client(), tmp_path / "go"
        session = await client.create("hold")
        turn = (await client.submit(session, str(go)))["turn_id"]
        await rolled_up(cluster, session)
        await cluster.wipe_nats()
        await cluster.nats.start()
        await rolled_up(cluster, session)
        # Nobody has looked at this session before: what the gateway knows it has from the broker.
        joining = client.stream(session, 0)
        await joining.until(lambda: view(joining.frames).text() == "holding ", what="what was said before")
        assert not go.exists()
        go.touch()
        assert (await terminal(joining, turn)).event == "turn.completed"
        assert view(joining.frames).text() == "holding done"
