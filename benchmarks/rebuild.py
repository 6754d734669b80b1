"""Rebuild against a bare asyncpg fetch of the same events, and appends while one runs, in one run:
`python -m benchmarks.rebuild [--full]`.

The bare fetch reads all columns of events in pages by a cursor and looks at nothing. The rebuild reads what it needs of
them, folds twice, writes, compares and switches over. Appends: submits to a few sessions, one after the other in each,
first alone and then while `turnlog rebuild` (a process of its own, as an operator runs it) goes round.
"""

import argparse
import asyncio
import json
import time
from statistics import median, quantiles
from typing import Any

import asyncpg

from domain.ids import SessionId
from infra.embedded import EmbeddedPostgres
from infra.postgres.audit_reader import HIGHEST, LOWEST
from infra.postgres.feed import PostgresFeed
from infra.postgres.feed_slots import PostgresFeedSlots
from infra.postgres.pool import create_pool
from infra.postgres.sql import statements
from projections.serving import session_projections
from projections.usage.projection import Usage
from services.projector.feed_rebuild import FeedRebuild
from services.projector.generations import choose, rebuild_pool
from services.projector.session_rebuild import LANES, SessionRebuild
from tests.support.commands import TURNLOG, environment
from tests.support.databases import Database
from tests.support.migrations import agent
from tests.support.places import server_directory
from tests.support.planted import copies, put
from tests.support.stand import Stand, postgres_stand
from tests.support.story import story

_NAME = "rebuilds"
_WRITERS = 8


async def bare(dsn: str) -> tuple[float, int]:
    """Seconds, events."""
    connection = await asyncpg.connect(dsn, server_settings={"jit": "off", "statement_timeout": "600000"})
    begin, count = time.perf_counter(), 0
    async with connection.transaction(readonly=True):
        cursor = await connection.cursor(statements("audit")["events"], LOWEST, HIGHEST)
        while rows := await cursor.fetch(2000):
            count += len(rows)
    await connection.close()
    return time.perf_counter() - begin, count


async def sessions_rebuilt(dsn: str, name: str) -> float:
    """Seconds for a rebuild of turns or messages, in this process."""
    pool = await rebuild_pool(dsn, size=LANES + 1)
    projections = session_projections()
    begin = time.perf_counter()
    target = await choose(pool, projections, name, rollback=False)
    (projection,) = [one for one in projections if one.name == name]
    report = await SessionRebuild(pool, projection, target, accept=False).run()
    seconds = time.perf_counter() - begin
    assert report.flipped
    assert not report.differences
    await pool.close()
    return seconds


async def feed_rebuilt(dsn: str) -> float:
    """Seconds for a rebuild of `usage`, in this process."""
    pool = await create_pool(dsn, size=3)
    begin = time.perf_counter()
    rebuild = FeedRebuild(Usage(), PostgresFeedSlots(pool), PostgresFeed(pool), batch=500, accept=False)
    assert (await rebuild.run()).flipped
    seconds = time.perf_counter() - begin
    await pool.close()
    return seconds


def percentiles(took: list[float]) -> dict[str, Any]:
    cut = quantiles(took, n=100)
    return {
        "appends": len(took),
        "p50_ms": round(cut[49], 1),
        "p99_ms": round(cut[98], 1),
        "max_ms": round(max(took), 1),
    }


async def under_rebuild(database: Database, seconds: float) -> dict[str, Any]:
    """Appends alone, and while rebuilds of messages run one after the other."""
    worker = await database.dsn_of("turnlog_worker")
    pool = await create_pool(worker, size=2)
    env = environment(TURNLOG_POSTGRES_WORKER=worker)
    async with postgres_stand(worker, pool) as stand:
        found: dict[str, Any] = {}
        for name in ("alone", "during"):
            sessions = [await stand.create() for _ in range(_WRITERS)]
            stop, rounds = asyncio.Event(), 0
            writing = asyncio.create_task(_bounded(stand, sessions, stop))
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                if name == "alone":
                    await asyncio.sleep(0.1)
                    continue
                process = await asyncio.create_subprocess_exec(
                    str(TURNLOG), "rebuild", "messages", env=env, stdout=asyncio.subprocess.DEVNULL
                )
                assert await process.wait() == 0
                rounds += 1
            stop.set()
            found[name] = percentiles(await writing)
        found["rebuilds"] = rounds
    await pool.close()
    return found


async def _bounded(stand: Stand, sessions: list[SessionId], stop: asyncio.Event) -> list[float]:
    """A queue holds a hundred turns: when the sessions are full, others are made."""
    took: list[float] = []
    while not stop.is_set():
        took += await _round(stand, sessions, stop)
        sessions = [await stand.create() for _ in sessions]
    return took


async def _round(stand: Stand, sessions: list[SessionId], stop: asyncio.Event) -> list[float]:
    took: list[float] = []

    async def write(session: SessionId) -> None:
        for _ in range(90):
            if stop.is_set():
                return
            begin = time.perf_counter()
            await stand.submit(session, "more")
            took.append((time.perf_counter() - begin) * 1000)
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as tasks:
        for session in sessions:
            tasks.create_task(write(session))
    return took


async def run(sessions: int, rounds: int, seconds: float) -> dict[str, Any]:
    with server_directory() as directory:
        server = EmbeddedPostgres(directory / "postgres")
        await server.start()
        try:
            await server.create_database(_NAME)
            await agent(server, _NAME)
            database = Database(_NAME, server)
            admin = await asyncpg.connect(database.dsn)
            async with admin.transaction():
                events = await put(admin, copies(story(), sessions))
            await admin.execute("ANALYZE")
            await admin.close()
            worker, projector = await database.dsn_of("turnlog_worker"), await database.dsn_of("turnlog_projector")
            ratios: dict[str, list[float]] = {"messages": [], "turns": [], "usage": []}
            rates: dict[str, list[float]] = {"messages": [], "turns": [], "usage": []}
            for _ in range(rounds):
                plain, count = await bare(database.dsn)
                assert count == events
                for name in ratios:
                    took = await (feed_rebuilt(projector) if name == "usage" else sessions_rebuilt(worker, name))
                    ratios[name].append(plain / took)
                    rates[name].append(events / took)
            found: dict[str, Any] = {
                name: {"ratio": round(median(ratios[name]), 3), "events_per_second": round(median(rates[name]))}
                for name in ratios
            }
            return {"events": events, **found, "appends": await under_rebuild(database, seconds)}
        finally:
            await server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="more sessions, more rounds, longer")
    given = parser.parse_args()
    sizes = (5000, 5, 60.0) if given.full else (500, 3, 10.0)
    print(json.dumps(asyncio.run(run(*sizes)), indent=2))


if __name__ == "__main__":
    main()
