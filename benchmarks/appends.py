"""Appends while `turnlog rebuild` goes round, against appends alone: `python -m benchmarks --only appends [--full]`.

Submits to a few sessions, one after the other in each, in rounds that take turns: alone, then while the command (a
process of its own, as an operator runs it) rebuilds `messages`, these sessions among the many that it switches over.
Allowed is a p99 of 1.5 times the one alone and 20 ms; and no append, so none of a session that is being switched over,
may take a second. The ratio is what is allowed by what was found, of the two the worse.
"""

import asyncio
import time
from statistics import quantiles
from typing import Any

from benchmarks.planted import full_database, server
from domain.ids import SessionId
from infra.postgres.pool import create_pool
from tests.support.commands import TURNLOG, environment
from tests.support.stand import Stand, postgres_stand

WANTED = 1.0
_WRITERS = 8
_PAUSE = 0.02
"""Seconds between two appends of a writer: the server has something to do, and something to spare."""
_QUEUE = 90


def allowed(alone: float) -> float:
    """Milliseconds."""
    return 1.5 * alone + 20


class Writers:
    """They write while `during` runs; `took` are milliseconds."""

    def __init__(self, stand: Stand) -> None:
        self._stand = stand

    async def write(self, stop: asyncio.Event) -> list[float]:
        """A queue holds a hundred turns: when the sessions are full, others are made."""
        took: list[float] = []
        while not stop.is_set():
            sessions = [await self._stand.create() for _ in range(_WRITERS)]
            async with asyncio.TaskGroup() as tasks:
                for session in sessions:
                    tasks.create_task(self._fill(session, stop, took))
        return took

    async def _fill(self, session: SessionId, stop: asyncio.Event, took: list[float]) -> None:
        for _ in range(_QUEUE):
            if stop.is_set():
                return
            begin = time.perf_counter()
            await self._stand.submit(session, "more")
            took.append((time.perf_counter() - begin) * 1000)
            await asyncio.sleep(_PAUSE)


async def rebuilt(dsn: str) -> None:
    """Once, all sessions."""
    process = await asyncio.create_subprocess_exec(
        str(TURNLOG),
        "rebuild",
        "messages",
        env=environment(TURNLOG_POSTGRES_WORKER=dsn),
        stdout=asyncio.subprocess.DEVNULL,
    )
    assert await process.wait() == 0


def percentiles(took: list[float]) -> dict[str, Any]:
    """Of one kind of rounds."""
    cut = quantiles(took, n=100)
    return {"appends": len(took), "p50_ms": round(cut[49], 1), "p99_ms": round(cut[98], 1), "max_ms": round(max(took))}


async def run(sessions: int = 500, rounds: int = 4, seconds: float = 3.0) -> dict[str, Any]:
    """`seconds`: of a round alone; one with a rebuild takes as many rebuilds as begin within them."""
    took: dict[str, list[float]] = {"alone": [], "during": []}
    rebuilds = 0
    async with server() as started:
        database, _ = await full_database(started, "appends", sessions)
        worker = await database.dsn_of("turnlog_worker")
        pool = await create_pool(worker, size=2)
        async with postgres_stand(worker, pool) as stand:
            for number in range(rounds):
                for name, found in took.items():
                    stop = asyncio.Event()
                    writing = asyncio.create_task(Writers(stand).write(stop))
                    end = time.perf_counter() + seconds
                    while time.perf_counter() < end:
                        if name == "alone":
                            await asyncio.sleep(end - time.perf_counter())
                        else:
                            await rebuilt(worker)
                            rebuilds += 1
                    stop.set()
                    some = await writing
                    found += some
                    print(f"round {number + 1}, {name}: {percentiles(some)}", flush=True)
        await pool.close()
    alone, during = percentiles(took["alone"]), percentiles(took["during"])
    ratio = min(allowed(alone["p99_ms"]) / during["p99_ms"], 1000 / during["max_ms"])
    return {"alone": alone, "during": during, "rebuilds": rebuilds, "ratio": round(ratio, 3), "wanted": WANTED}
