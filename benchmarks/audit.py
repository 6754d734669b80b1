"""Audit against a bare asyncpg fetch of the same rows, in one run: `python -m benchmarks --only audit [--full]`.

Both read all columns of events, turns, messages, sessions and command_log in pages by a cursor; the bare fetch looks
at nothing. Two shapes: many sessions of 41 events with everything in them, and one session of very many events, whose
audit runs in a process of its own so that its peak of memory is known. The ratio is that of the slower shape, in one
process; `two_processes` has the start of two Pythons in it and is held against the same single bare fetch.
"""

import asyncio
import multiprocessing
import resource
from statistics import median
from typing import Any

from benchmarks.planted import bare, full_database, giant_database, server, timed
from infra.embedded import EmbeddedPostgres
from services.cli.auditing import Totals, audit_database
from services.cli.long_work import run_long

AS_COMMANDS_RUN = True
"""On uvloop, both sides."""
WANTED = 0.2
MOST_MIB = 200
_TABLES = ("events", "turns", "messages", "replies", "heads")


async def audited(dsn: str, parallel: int = 1) -> int:
    """Events, none of them with a finding."""
    totals: Totals = await audit_database(dsn, None, parallel, lambda totals: None)
    assert not totals.findings, totals.findings[0]
    assert not totals.not_judged
    return totals.events


def _audited_in_child(dsn: str) -> tuple[float, int, int]:
    seconds, count = run_long(timed(audited, dsn))
    return seconds, count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


async def many(started: EmbeddedPostgres, sessions: int, rounds: int) -> dict[str, Any]:
    """Rounds take turns."""
    database, events = await full_database(started, "many", sessions)
    one, two, rates = [], [], []
    for number in range(rounds):
        plain, _ = await timed(bare, database.dsn, _TABLES)
        alone, count = await timed(audited, database.dsn)
        both, _ = await timed(audited, database.dsn, 2)
        assert count == events
        one.append(plain / alone)
        two.append(plain / both)
        rates.append(count / alone)
        print(f"round {number + 1}: {one[-1]:.2f} of a bare fetch, by two processes {two[-1]:.2f}", flush=True)
    return {
        "events": events,
        "events_per_second": round(median(rates)),
        "one_process": round(median(one), 3),
        "two_processes": round(median(two), 3),
    }


async def giant(started: EmbeddedPostgres, events: int, rounds: int) -> dict[str, Any]:
    """One session."""
    database = await giant_database(started, events)
    context = multiprocessing.get_context("spawn")
    found, rates, peaks = [], [], []
    for number in range(rounds):
        plain, _ = await timed(bare, database.dsn, _TABLES)
        with context.Pool(1) as pool:
            seconds, count, peak = await asyncio.to_thread(pool.apply, _audited_in_child, (database.dsn,))
        found.append(plain / seconds)
        rates.append(count / seconds)
        peaks.append(peak)
        print(f"round {number + 1}, one session: {found[-1]:.2f} of a bare fetch, {peak} MiB", flush=True)
    return {
        "events": count,
        "events_per_second": round(median(rates)),
        "one_process": round(median(found), 3),
        "peak_mib": max(peaks),
    }


async def run(sessions: int = 500, rounds: int = 3, events: int = 50_000) -> dict[str, Any]:
    """`ratio` is 0 where the memory of the audit is above what is allowed."""
    async with server() as started:
        shapes = {"many": await many(started, sessions, rounds), "giant": await giant(started, events, rounds)}
    slower = min(shape["one_process"] for shape in shapes.values())
    return {**shapes, "ratio": slower if shapes["giant"]["peak_mib"] < MOST_MIB else 0.0, "wanted": WANTED}
