"""No-op turns a second against DBOS and procrastinate, on one server, in one run.

`python -m benchmarks.turns [--rounds N] [--sessions N] [--turns N]`. What is the same for all: one process, one
PostgreSQL with fsync on, sessions × turns, strictly one at a time and in order within a session. Turnlog goes through
its command interface: submit, claim, finish, each with its event log, hash chain and both read models. DBOS has a queue
with a partition key a session and partition concurrency 1; procrastinate a `lock` a session. Each contender has a
database of its own and a fresh one each round; the rounds take turns, so that what else the machine does hits all
alike. A contender that is slow is stopped after LIMIT seconds of a round, and the line says so: its rate is that of the
turns it had done by then.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable

import asyncpg

from infra.embedded import EmbeddedPostgres
from infra.postgres.migrate import migrate
from infra.postgres.names import role_name
from tests.support.places import server_directory

CONTENDERS = ("turnlog", "dbos", "procrastinate")
WANTED = 6.0
"""Times the better of the others."""
LIMIT = 15.0
"""Seconds that another contender gets for a round; its rate is then that of what it has done by then."""


async def _fresh(server: EmbeddedPostgres, name: str) -> str:
    """An empty database; the dsn to it."""
    connection = await asyncpg.connect(server.superuser_dsn)
    try:
        await connection.execute(f'CREATE DATABASE "{name}"')
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()
    return server.superuser_dsn.removesuffix("/postgres") + f"/{name}"


async def _fresh_turnlog(server: EmbeddedPostgres, name: str) -> str:
    """A migrated database; the dsn of the role that worker processes have."""
    role = role_name("worker")
    await migrate(server.superuser_dsn, "agent", database=name, passwords={"worker": server.password_of(role)})
    return server.dsn(role, server.password_of(role), name)


async def _measured(contender: str, dsn: str, sessions: int, turns: int) -> tuple[float, int]:
    """Seconds and turns done in them: all of them, but for a contender that the limit has stopped."""
    module = f"benchmarks.contenders.{contender}_turns"
    words = [dsn, str(sessions), str(turns), *([] if contender == "turnlog" else [str(LIMIT)])]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    printed, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{contender} did not finish: run `python -m {module}` by hand")
    if contender == "turnlog":
        return float(printed.split()[-1]), sessions * turns
    seconds, done = printed.split()[-2:]
    return float(seconds), int(done)


async def run(rounds: int = 3, sessions: int = 200, turns: int = 10) -> dict[str, object]:
    """Turns a second by contender and round, medians, and the ratio to the better of the others."""
    prepare: dict[str, Callable[[EmbeddedPostgres, str], Awaitable[str]]] = {"turnlog": _fresh_turnlog}
    found: dict[str, list[float]] = {contender: [] for contender in CONTENDERS}
    with server_directory() as directory:
        server = EmbeddedPostgres(directory / "postgres")
        await server.start()
        try:
            for number in range(rounds):
                for contender in CONTENDERS:
                    dsn = await prepare.get(contender, _fresh)(server, f"{contender}_{number}")
                    seconds, done = await _measured(contender, dsn, sessions, turns)
                    found[contender].append(done / seconds)
                    cut = (
                        ""
                        if done == sessions * turns
                        else f" ({done} of {sessions * turns}: stopped after {LIMIT:.0f} s)"
                    )
                    print(f"round {number + 1}: {contender:14} {done / seconds:8.0f} turns/s{cut}", flush=True)
        finally:
            await server.stop()
    medians = {contender: statistics.median(rates) for contender, rates in found.items()}
    ratios = [
        ours / max(dbos, procrastinate)
        for ours, dbos, procrastinate in zip(*(found[contender] for contender in CONTENDERS), strict=True)
    ]
    return {"turns_per_second": medians, "ratios": ratios, "ratio": statistics.median(ratios), "wanted": WANTED}


def main() -> None:
    """Print the result as one JSON line; exit code 1 when the ratio is not what it shall be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--turns", type=int, default=10)
    options = parser.parse_args()
    result = asyncio.run(run(options.rounds, options.sessions, options.turns))
    print(json.dumps(result))
    raise SystemExit(0 if float(str(result["ratio"])) >= WANTED else 1)


if __name__ == "__main__":
    main()
