"""`GET /v1/search`: words and characters, one's own sessions only, page by page."""

from typing import Any
from urllib.parse import urlencode

import pytest

from infra.embedded import EmbeddedPostgres
from infra.postgres.pool import create_pool
from projections.search.projection import Search
from projections.search.terms import fold, question, terms
from tests.support.databases import Databases
from tests.support.feeding import caught_up, running
from tests.support.gateways import http_stand, user_token


@pytest.mark.parametrize(
    ("text", "found_by", "not_by"),
    [
        ("The Tides of Brest, 2026", ["tides", "BREST the", "2026"], ["tide", "bre"]),
        ("東京都に行く", ["東京", "京都", "東京都", "行"], ["都京", "京行", "東京行"]),
        ("東京と京都", ["東京", "京都"], ["東京都"]),
        ("한국어 문장", ["한국", "문장"], ["국한"]),
        ("Straße ＡＢＣ", ["STRASSE", "abc"], ["str"]),
        ("iPhone15を買う", ["iphone15", "を買"], ["iphone"]),
    ],
)
def test_what_a_text_is_found_by(text: str, found_by: list[str], not_by: list[str]) -> None:
    def answers(asked: str) -> bool:
        wanted = question(asked)
        has = set(terms(fold(text)))
        return bool(wanted.terms) and set(wanted.terms) <= has and all(run in fold(text) for run in wanted.runs)

    assert [asked for asked in found_by if not answers(asked)] == []
    assert [asked for asked in not_by if answers(asked)] == []


async def test_only_ones_own_sessions_are_searched_page_by_page(
    postgres: EmbeddedPostgres, databases: Databases
) -> None:
    async with http_stand(databases) as stand:
        ann, bob = stand.client(), stand.client(token=user_token("bob"))
        assert await ann.json("GET", "/v1/search?q=x") == {"items": [], "next_cursor": None}
        mine, theirs = await ann.create("echo"), await bob.create("echo")
        for number in range(5):
            await ann.submit(mine, f"tides number {number} 潮汐表")
        await bob.submit(theirs, "tides of bob")
        agent = stand.settings.dsn("agent").rpartition("/")[2]
        role = await postgres.create_login("turnlog_projector")
        pool = await create_pool(postgres.dsn("turnlog_projector", role, agent), size=3)
        async with running(pool, Search()):
            await caught_up(pool, "search")
        found: list[dict[str, Any]] = []
        cursor = None
        for _ in range(3):
            query = {"q": "Tides 潮汐表", "limit": "2"} | ({} if cursor is None else {"cursor": cursor})
            page = await ann.json("GET", f"/v1/search?{urlencode(query)}")
            found += page["items"]
            cursor = page["next_cursor"]
        assert cursor is None
        assert [one["content"] for one in found] == [f"tides number {n} 潮汐表" for n in (4, 3, 2, 1, 0)]
        assert {one["session_id"] for one in found} == {mine}
        assert (await ann.json("GET", f"/v1/search?{urlencode({'q': '汐潮'})}"))["items"] == []
        assert len((await bob.json("GET", "/v1/search?q=tides"))["items"]) == 1
        await ann.json("GET", "/v1/search?q=x&cursor=nonsense", status=400)
        await ann.submit(mine, "one more")
        await bob.submit(theirs, "one more")
        (state,) = await ann.json("GET", "/v1/projections")
        assert (state["name"], state["lag_events"], state["parked"], state["running"]) == ("search", 2, 0, False)
        await ann.json("DELETE", f"/v1/sessions/{mine}", status=204)
        assert (await ann.json("GET", "/v1/search?q=tides"))["items"] == []
        await pool.close()
