"""`DELETE /v1/sessions/{id}?erase=true`: at once where nothing runs, else by the sweeper once the turn has ended."""

from typing import Any

import asyncpg

from domain.clock import IdSource
from services.gateway.sweeper import Sweeper
from tests.support.databases import Databases
from tests.support.gateways import HttpStand, http_stand


async def types(stand: HttpStand, session: str) -> list[Any]:
    connection = await asyncpg.connect(stand.settings.dsn("agent"))
    try:
        return await connection.fetch(
            "SELECT type, salt IS NULL AS erased FROM events WHERE session_id = $1 ORDER BY sequence", session
        )
    finally:
        await connection.close()


async def swept(stand: HttpStand, ids: IdSource) -> int:
    deps = stand.deps[0]
    return await Sweeper(deps.agent, deps.registrations, ids, 0.0).sweep()


async def test_deleted_and_erased(databases: Databases) -> None:
    async with http_stand(databases) as stand:
        ann = stand.client()
        idle = await ann.create("echo", title="my secret")
        await ann.json("DELETE", f"/v1/sessions/{idle}?erase=true", status=204)
        assert [tuple(row) for row in await types(stand, idle)] == [
            ("session.created", True), ("session.closed", True), ("session.erased", False),
        ]  # fmt: skip
        connection = await asyncpg.connect(stand.settings.dsn("gateway"))
        assert await connection.fetchval("SELECT title FROM registrations WHERE session_id = $1", idle) is None
        await connection.close()
        kept = await ann.create("echo")
        await ann.json("DELETE", f"/v1/sessions/{kept}", status=204)
        assert [row["erased"] for row in await types(stand, kept)] == [False, False]
        busy = await ann.create("echo")
        await ann.submit(busy, "words")
        claim = await stand.claim(busy)
        await ann.json("DELETE", f"/v1/sessions/{busy}?erase=true", status=204)
        await swept(stand, stand.ids)
        assert not any(row["erased"] for row in await types(stand, busy))
        await stand.finish(claim, outcome="interrupted", output=None)
        await swept(stand, stand.ids)
        rows = await types(stand, busy)
        assert rows[-1]["type"] == "session.erased"
        assert [row["erased"] for row in rows] == [True] * (len(rows) - 1) + [False]
        assert await swept(stand, stand.ids) == 0
        await ann.json("DELETE", f"/v1/sessions/{kept}?erase=maybe", status=422)
