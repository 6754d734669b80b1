"""npm's WHATWG EventSource as judge: clean, cut after every event, the gateway changed between cut and resume."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.sse import assert_gapless
from tests.system.judging import Verdict, cut_wire, judging
from tests.system.tools import needs_eventsource

pytestmark = [pytest.mark.system, needs_eventsource, pytest.mark.asyncio(loop_scope="module")]

INPUT = "漢字 é 👩‍👩‍👧\r\nx"


def assert_judged(verdicts: list[Verdict], events: list[dict[str, Any]], opens: list[int]) -> None:
    """Ids 1..n at each, the same events, the same fold, so many connections and no refusal."""
    for verdict in verdicts:
        assert_gapless(verdict.ids)
        assert verdict.committed == events
        assert verdict.folded == verdicts[0].folded
        assert verdict.refusals == []
    assert [verdict.opens for verdict in verdicts] == opens


async def test_cut_after_every_event_and_resumed_at_the_other_gateway(site: Cluster) -> None:
    ports = [gateway.port or 0 for gateway in site.gateways]
    client = site.client()
    # How many events such a turn has.
    model = await client.create("tools")
    await client.run(model, INPUT)
    count = len(await client.events(model))
    session = await client.create("tools")
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(cut_wire(ports, after)) for after in range(count)]
        judge = await stack.enter_async_context(judging([f"{wire}/v1/sessions/{session}/events" for wire in wires]))
        await judge.opened()
        await client.submit(session, INPUT)
        verdicts = await judge.verdicts()
    events = await client.events(session)
    assert len(events) == count
    assert_judged(verdicts, events, [1] + [2] * (count - 1))
    (turn,) = verdicts[0].folded["turns"]
    said = [item["text"] for item in turn["items"] if item["kind"] == "text"]
    found = [message for message in await client.messages(session) if message["role"] == "assistant"]
    assert said == ["".join(part["text"] for part in message["parts"]) for message in found]


async def test_cut_in_mid_sentence_and_joined_again_at_the_other_gateway(site: Cluster, tmp_path: Path) -> None:
    """The text goes on while nobody is connected: a snapshot, then exactly the deltas behind it."""
    ports = [gateway.port or 0 for gateway in site.gateways]
    client = site.client()
    session = await client.create("counting")
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(cut_wire(ports, after)) for after in (1, 2, 3)]
        judge = await stack.enter_async_context(judging([f"{wire}/v1/sessions/{session}/events" for wire in wires]))
        await judge.opened()
        await client.submit(session, str(tmp_path / "enough"))
        await judge.opened(2)
        (tmp_path / "enough").touch()
        verdicts = await judge.verdicts()
    assert_judged(verdicts, await client.events(session), [2, 2, 2])
    for verdict in verdicts:
        kinds = {one["type"] for one in verdict.heard}
        assert "item.snapshot" in kinds or "item.started" in kinds
