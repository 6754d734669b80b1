"""No-op jobs of procrastinate, one `lock` a session.

`python -m benchmarks.contenders.procrastinate_turns DSN SESSIONS TURNS LIMIT`. Jobs are deferred in batches, which is
its fastest way, and executed by one worker. Prints the seconds from the first defer to the last job's end or to the
limit, and how many had ended.
"""

import asyncio
import contextlib
import sys
import time
from typing import Any

import procrastinate

CONCURRENCY = 30


async def measure(dsn: str, sessions: int, turns: int, limit: float) -> tuple[float, int]:
    """Seconds, and how many jobs had ended by then: not all of them where the limit, in seconds, came first."""
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=dsn, min_size=10, max_size=10))
    done = 0
    finished = asyncio.Event()

    @app.task(name="noop")  # type: ignore[untyped-decorator, unused-ignore]
    async def noop(text: str) -> None:
        nonlocal done
        done += 1
        if done == sessions * turns:
            finished.set()

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        begun = time.perf_counter()
        for number in range(sessions):
            inputs: list[Any] = [{"text": "hello"}] * turns
            await noop.configure(lock=f"session-{number}").batch_defer_async(*inputs)
        worker = asyncio.create_task(
            app.run_worker_async(concurrency=CONCURRENCY, fetch_job_polling_interval=0.5, install_signal_handlers=False)
        )
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(finished.wait(), limit)
        taken, ended = time.perf_counter() - begun, done
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
    return taken, ended


if __name__ == "__main__":
    print(*asyncio.run(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))))
