"""Rebuild against a bare asyncpg fetch of the same events, in one run: `python -m benchmarks --only rebuild [--full]`.

The bare fetch reads all columns of events in pages by a cursor and looks at nothing. The rebuild reads what it needs of
them, folds twice, writes, compares and switches over, in one process as `turnlog rebuild` runs it. Rounds take turns.
The ratio is that of the slowest of the three. One session of very many events is rebuilt in a process of its own, so
that the peak of memory is known. `two_processes` (not for few sessions) is `turnlog rebuild messages
--parallel 2` as it is typed, start of Python included, against the same single bare fetch.
"""

import asyncio
import multiprocessing
import resource
import time
from statistics import median
from typing import Any

from benchmarks.planted import bare, full_database, giant_database, server, timed
from infra.embedded import EmbeddedPostgres
from infra.postgres.feed import PostgresFeed
from infra.postgres.feed_slots import PostgresFeedSlots
from infra.postgres.pool import create_pool
from projections.serving import session_projections
from projections.usage.projection import Usage
from services.cli.long_work import run_long
from services.projector.feed_rebuild import FeedRebuild
from services.projector.generations import choose, rebuild_pool
from services.projector.session_rebuild import LANES, SessionRebuild
from tests.support.commands import TURNLOG, environment

AS_COMMANDS_RUN = True
"""On uvloop, both sides."""
WANTED = 0.3
MOST_MIB = 200
_BATCH = 500
_MANY = 2000


async def sessions_rebuilt(dsn: str, name: str) -> int:
    """A rebuild of turns or messages in this process; sessions."""
    pool = await rebuild_pool(dsn, size=LANES + 1)
    projections = session_projections()
    target = await choose(pool, projections, name, rollback=False)
    (projection,) = [one for one in projections if one.name == name]
    report = await SessionRebuild(pool, projection, target, accept=False).run()
    await pool.close()
    assert not report.differences
    return report.flipped


async def feed_rebuilt(dsn: str) -> int:
    """A rebuild of `usage` in this process."""
    pool = await create_pool(dsn, size=3)
    rebuild = FeedRebuild(Usage(), PostgresFeedSlots(pool), PostgresFeed(pool), batch=_BATCH, accept=False)
    report = await rebuild.run()
    await pool.close()
    return report.flipped


async def typed(dsn: str, *words: str) -> int:
    """The command as a process of its own."""
    process = await asyncio.create_subprocess_exec(
        str(TURNLOG), *words, env=environment(TURNLOG_POSTGRES_WORKER=dsn), stdout=asyncio.subprocess.DEVNULL
    )
    return int(await process.wait() == 0)


def _rebuilt_in_child(dsn: str, name: str) -> tuple[float, int, int]:
    seconds, flipped = run_long(timed(sessions_rebuilt, dsn, name))
    return seconds, flipped, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


async def giant(started: EmbeddedPostgres, events: int) -> dict[str, Any]:
    """One session."""
    database = await giant_database(started, events)
    worker = await database.dsn_of("turnlog_worker")
    context = multiprocessing.get_context("spawn")
    found: dict[str, Any] = {"events": events}
    for name in ("messages", "turns"):
        plain, _ = await timed(bare, database.dsn)
        with context.Pool(1) as pool:
            seconds, flipped, peak = await asyncio.to_thread(pool.apply, _rebuilt_in_child, (worker, name))
        assert flipped == 1
        found[name] = {"ratio": round(plain / seconds, 3), "peak_mib": peak}
        print(f"one session, {name}: {plain / seconds:.2f} of a bare fetch, {peak} MiB", flush=True)
    return found


async def run(sessions: int = 500, rounds: int = 3, events: int = 50_000) -> dict[str, Any]:
    """Ratios by read model, medians of rounds; 0 where the memory of a rebuild is above what is allowed."""
    async with server() as started:
        database, planted = await full_database(started, "rebuilds", sessions)
        worker, projector = await database.dsn_of("turnlog_worker"), await database.dsn_of("turnlog_projector")
        ratios: dict[str, list[float]] = {"messages": [], "turns": [], "usage": []}
        if sessions >= _MANY:
            ratios["two_processes"] = []
        rates: list[float] = []
        for number in range(rounds):
            begun = time.perf_counter()
            for name, found in ratios.items():
                plain, count = await timed(bare, database.dsn)
                assert count == planted
                match name:
                    case "usage":
                        took, done = await timed(feed_rebuilt, projector)
                    case "two_processes":
                        took, done = await timed(typed, worker, "rebuild", "messages", "--parallel", "2")
                    case _:
                        took, done = await timed(sessions_rebuilt, worker, name)
                assert done
                found.append(plain / took)
                rates.append(planted / plain)
            shown = ", ".join(f"{name} {found[-1]:.2f}" for name, found in ratios.items())
            print(f"round {number + 1}: {shown} of a bare fetch ({time.perf_counter() - begun:.0f} s)", flush=True)
        long = await giant(started, events)
    medians = {name: round(median(found), 3) for name, found in ratios.items()}
    slowest = min(medians[name] for name in ("messages", "turns", "usage"))
    return {
        "events": planted,
        "bare_events_per_second": round(median(rates)),
        **medians,
        "giant": long,
        "ratio": slowest if all(long[name]["peak_mib"] < MOST_MIB for name in ("messages", "turns")) else 0.0,
        "wanted": WANTED,
    }
