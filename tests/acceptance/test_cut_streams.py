"""The stream cut after every event of a turn and resumed at the other gateway: to the byte what the uncut one was."""

import asyncio

from tests.support.cluster import Cluster
from tests.support.raw import raw_stream_of

_ENDS = b"event: turn.completed"


async def test_r04_cut_after_every_event_in_mid_turn_and_resumed_at_the_other_gateway(cluster: Cluster) -> None:
    """One viewer watches live and uncut; one hangs up after every event and goes to the other gateway, while the turn
    runs; afterwards every cut is tried once more. The blocks with an id are the same bytes."""
    ports = [gateway.port or 0 for gateway in cluster.gateways]
    a = cluster.client(0)
    session = await a.create("tools")
    async with raw_stream_of(ports[1], session, 0) as watched:
        uncut = asyncio.create_task(watched.until(_ENDS))
        hopping = asyncio.create_task(hop(ports, session))
        await a.submit(session, "x")
        whole = await uncut
        assert await hopping == whole
    assert len(whole) >= 10
    for cut in range(len(whole)):
        async with raw_stream_of(ports[cut % 2], session, cut) as rest:
            assert await rest.until(_ENDS) == whole[cut:], cut


async def hop(ports: list[int], session: str) -> list[bytes]:
    """One connection an event, the gateways in turn."""
    seen: list[bytes] = []
    while not seen or _ENDS not in seen[-1]:
        async with raw_stream_of(ports[len(seen) % 2], session, len(seen)) as stream:
            seen.append(await stream.next_block())
    return seen
