"""No-op workflows of DBOS on a queue with a partition key a session and partition concurrency 1.

`python -m benchmarks.contenders.dbos_turns DSN SESSIONS TURNS LIMIT`. Prints the seconds from the first enqueue to the
last workflow's end or to the limit, and how many had ended.
"""

import asyncio
import contextlib
import sys
import time

from dbos import DBOS, SetEnqueueOptions

POLL_SECONDS = 0.05
ENQUEUERS = 20


async def measure(dsn: str, sessions: int, turns: int, limit: float) -> tuple[float, int]:
    """Seconds, and how many jobs had ended by then: not all of them where the limit, in seconds, came first."""
    DBOS(
        config={
            "name": "bench",
            "system_database_url": dsn,
            "log_level": "ERROR",
            "console_log_level": "ERROR",
            "sys_db_pool_size": 20,
        }
    )
    done = 0
    finished = asyncio.Event()

    @DBOS.workflow()
    async def noop(text: str) -> None:
        nonlocal done
        done += 1
        if done == sessions * turns:
            finished.set()

    DBOS.launch()
    await DBOS.register_queue_async("turns", partition_concurrency=1, polling_interval_sec=POLL_SECONDS)
    # The queue's own thread notices a new queue within a second.
    with SetEnqueueOptions(queue_partition_key="warm"):
        handle = await DBOS.enqueue_workflow_async("turns", noop, "hello")
    await handle.get_result()
    done = 0
    gate = asyncio.Semaphore(ENQUEUERS)

    async def enqueue(number: int) -> None:
        for _ in range(turns):
            async with gate:
                with SetEnqueueOptions(queue_partition_key=f"session-{number}"):
                    await DBOS.enqueue_workflow_async("turns", noop, "hello")

    begun = time.perf_counter()
    await asyncio.gather(*map(enqueue, range(sessions)))
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(finished.wait(), limit)
    taken, ended = time.perf_counter() - begun, done
    DBOS.destroy()
    return taken, ended


if __name__ == "__main__":
    print(*asyncio.run(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))))
