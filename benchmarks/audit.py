"""Audit against a bare asyncpg fetch of the same rows, in one run: `python -m benchmarks.audit [--full]`.

Both read all columns of events, turns, messages, sessions and command_log in pages by a cursor; the bare fetch looks
at nothing. Two shapes: many sessions of 41 events with everything in them, and one session of very many events, whose
audit runs in a process of its own so that its peak of memory is known.
"""

import argparse
import asyncio
import json
import multiprocessing
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

import asyncpg

from benchmarks.giant import EVENTS_A_TURN, put_giant
from infra.embedded import EmbeddedPostgres
from infra.postgres.audit_reader import HIGHEST, LOWEST
from infra.postgres.pool import prepare
from infra.postgres.sql import statements
from services.cli.auditing import Totals, audit_database
from tests.support.migrations import agent
from tests.support.places import server_directory
from tests.support.planted import copies, put
from tests.support.story import story

_SQL = statements("audit")


async def bare(dsn: str) -> int:
    """Every row that an audit needs, with asyncpg's own codecs."""
    connection = await asyncpg.connect(dsn, server_settings={"jit": "off", "statement_timeout": "600000"})
    count = 0
    try:
        async with connection.transaction(readonly=True):
            for name in ("events", "turns", "messages", "replies", "heads"):
                cursor = await connection.cursor(_SQL[name], LOWEST, HIGHEST)
                while rows := await cursor.fetch(2000):
                    count += len(rows) if name == "events" else 0
    finally:
        await connection.close()
    return count


async def audited(dsn: str, parallel: int = 1) -> int:
    totals: Totals = await audit_database(dsn, None, parallel, lambda totals: None)
    assert not totals.findings, totals.findings[0]
    assert not totals.not_judged
    return totals.events


async def timed(work: Callable[..., Awaitable[int]], *arguments: Any) -> tuple[float, int]:
    begin = time.perf_counter()
    count = await work(*arguments)
    return time.perf_counter() - begin, count


def _audited_in_child(dsn: str) -> tuple[float, int, int]:
    seconds, count = asyncio.run(timed(audited, dsn))
    return seconds, count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


@asynccontextmanager
async def database(name: str, server: EmbeddedPostgres) -> AsyncIterator[str]:
    await server.create_database(name)
    await agent(server, name)
    yield server.superuser_dsn.removesuffix("/postgres") + f"/{name}"


async def many(server: EmbeddedPostgres, sessions: int, rounds: int) -> dict[str, Any]:
    async with database("many", server) as dsn:
        connection = await asyncpg.connect(dsn)
        async with connection.transaction():
            events = await put(connection, copies(story(), sessions))
        await connection.execute("ANALYZE")
        await connection.close()
        one, two, rates = [], [], []
        for _ in range(rounds):
            plain, _ = await timed(bare, dsn)
            alone, count = await timed(audited, dsn)
            both, _ = await timed(audited, dsn, 2)
            assert count == events
            one.append(plain / alone)
            two.append(plain / both)
            rates.append(count / alone)
        return {
            "events": events,
            "audit_events_per_second": round(median(rates)),
            "ratio_one_process": round(median(one), 3),
            "ratio_two_processes": round(median(two), 3),
        }


async def giant(server: EmbeddedPostgres, events: int) -> dict[str, Any]:
    async with database("giant", server) as dsn:
        connection = await asyncpg.connect(dsn)
        await prepare(connection)
        await connection.reset_type_codec("uuid", schema="pg_catalog")
        await put_giant(connection, events // EVENTS_A_TURN)
        await connection.execute("ANALYZE")
        await connection.close()
        plain, _ = await timed(bare, dsn)
        context = multiprocessing.get_context("spawn")
        with context.Pool(1) as pool:
            seconds, count, peak = await asyncio.to_thread(pool.apply, _audited_in_child, (dsn,))
        return {
            "events": count,
            "audit_events_per_second": round(count / seconds),
            "ratio_one_process": round(plain / seconds, 3),
            "peak_mib": peak,
        }


async def run(sessions: int, rounds: int, events: int) -> dict[str, Any]:
    with server_directory() as directory:
        server = EmbeddedPostgres(directory / "postgres")
        await server.start()
        try:
            return {"many": await many(server, sessions, rounds), "giant": await giant(server, events)}
        finally:
            await server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="a million events in one session, more rounds")
    given = parser.parse_args()
    sizes = (5000, 5, 1_000_000) if given.full else (500, 3, 50_000)
    print(json.dumps(asyncio.run(run(*sizes)), indent=2))


if __name__ == "__main__":
    main()
