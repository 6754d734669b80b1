"""An agent process that dies between its commit and its reply."""

from tests.support.cluster import Clusters
from tests.support.cutting import cutting_proxy


async def test_c08_the_agent_is_killed_between_commit_and_reply(clusters: Clusters) -> None:
    """aegra/aegra#501, NousResearch/hermes-agent#88400: the same request finds the same turn and the same session."""
    settings = {"TURNLOG_AGENT_UNAVAILABLE_SECONDS": "20"}
    async with clusters.start(workers=1, serve=["echo=tests.support.agents:echo"], settings=settings) as cluster:
        [agent], [gateway] = cluster.agents, cluster.gateways
        async with cutting_proxy(agent.url) as proxy:
            await gateway.restart(TURNLOG_AGENT_URLS=proxy.url)
            await cluster.ready([gateway])
            proxy.on_lost = agent.restart
            client = cluster.client()

            proxy.lose(1)
            body = {"agent_id": "echo", "external_id": "mine"}
            made = await client.json("POST", "/v1/sessions", body, status=201)
            assert proxy.lost == 1
            again = await client.json("POST", "/v1/sessions", body, status=200)
            assert again["session_id"] == made["session_id"]

            proxy.lose(1)
            first = await client.submit("mine", "one", "a key")
            assert proxy.lost == 2
            assert await client.submit("mine", "one", "a key") == first
            other = {"input": "two"}
            await client.json("POST", "/v1/sessions/mine/turns", other, status=409, Idempotency_Key="a key")

            turns = (await client.json("GET", "/v1/sessions/mine/turns"))["items"]
            assert [turn["turn_id"] for turn in turns] == [first["turn_id"]]
            assert await cluster.check(all_terminal=False) == []
