"""Replay of a long session through a gateway against a bare `asyncpg.fetch` of its rows.

`python -m benchmarks.replay [--rounds N] [--events N]`. The client reads the stream from 0 to the last event over HTTP;
the bare fetch takes the same columns of the same rows in one statement. Both are repeated in turn, in one run.

CPU seconds stand beside the times: they say who became slower, whatever else the machine does meanwhile. A bare fetch
spends half of its time in Python's collector where that runs as often as by default: it is measured with the thresholds
that our own commands have, which makes it twice as fast.
"""

import argparse
import asyncio
import gc
import json
import statistics
import time
from typing import Any

import asyncpg
import psutil

from benchmarks.streams import StreamStand, stream_stand
from tests.support.delivery import Writer

WANTED = 0.4
_BATCH = 500
_SQL = """
SELECT sequence, event_id, type, schema_version, turn_id, created_at, payload
FROM events WHERE session_id = $1 AND sequence > 0 ORDER BY sequence
"""


def cpu_of(pid: int) -> float:
    """Seconds that a process and its children have used."""
    process = psutil.Process(pid)
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(spent.user + spent.system for spent in times)


async def postmaster(stand: StreamStand) -> int:
    """The process whose children are the server's."""
    connection = await asyncpg.connect(stand.cluster.dsn())
    try:
        return psutil.Process(connection.get_server_pid()).ppid()
    finally:
        await connection.close()


async def bare(stand: StreamStand, session: str) -> tuple[float, float]:
    """Seconds, and CPU seconds of this process."""
    connection = await asyncpg.connect(stand.cluster.dsn())
    try:
        await connection.fetchval("SELECT count(*) FROM events")
        used, begin = time.process_time(), time.perf_counter()
        rows = await connection.fetch(_SQL, session)
        took, used = time.perf_counter() - begin, time.process_time() - used
        assert rows[-1]["sequence"] == len(rows)
        return took, used
    finally:
        await connection.close()


async def replayed(stand: StreamStand, session: str, last: int) -> tuple[float, int]:
    """Seconds until the last event has come, and bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.gateway.port, limit=2**22)
    try:
        request = f"GET /v1/sessions/{session}/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"
        begin = time.perf_counter()
        writer.write(request.encode())
        marker, tail, size = b"\nid: %d\n" % last, b"", 0
        while marker not in tail:
            data = await reader.read(2**20)
            assert data, "the stream ended early"
            size += len(data)
            tail = tail[-64:] + data
        return time.perf_counter() - begin, size
    finally:
        writer.close()


async def fill(session: Writer, events: int) -> int:
    """Commits so many; returns the last sequence."""
    for _ in range(events // _BATCH):
        await session.append(_BATCH, pad=100)
    return 3 + events // _BATCH * _BATCH


async def run(rounds: int = 3, events: int = 100_000) -> dict[str, Any]:
    """Prints a line a round. `ratio`: the median of the replay's speed by that of the bare fetch next to it."""
    found = []
    async with stream_stand(pinned=False) as stand:
        session = await stand.session()
        last = await fill(session, events)
        processes = {
            "agent": stand.cluster.agents[0].pid,
            "gateway": stand.gateway.pid,
            "postgres": await postmaster(stand),
        }
        gc.set_threshold(50_000, 20, 50)
        for number in range(rounds):
            fetched, used = await bare(stand, session.session)
            before = {name: cpu_of(pid) for name, pid in processes.items()}
            took, size = await replayed(stand, session.session, last)
            result = {
                "events": last,
                "bare_seconds": round(fetched, 3),
                "replay_seconds": round(took, 3),
                "mib_per_second": round(size / took / 2**20),
                "ratio": round(fetched / took, 2),
                "bare_client_cpu": round(used, 2),
                "replay_cpu": {name: round(cpu_of(pid) - before[name], 2) for name, pid in processes.items()},
            }
            print(f"round {number + 1}: replay: {result}", flush=True)
            found.append(fetched / took)
    return {
        "ratios": [round(ratio, 2) for ratio in found],
        "ratio": round(statistics.median(found), 2),
        "wanted": WANTED,
    }


def main() -> None:
    """Print the result as one JSON line; exit code 1 when the ratio is not what it shall be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=100_000)
    options = parser.parse_args()
    result = asyncio.run(run(options.rounds, options.events))
    print(json.dumps(result))
    raise SystemExit(0 if result["ratio"] >= result["wanted"] else 1)


if __name__ == "__main__":
    main()
