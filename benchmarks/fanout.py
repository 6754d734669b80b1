"""Fan-out: events committed once, read by 500 viewers of one session from a gateway on one core.

`python -m benchmarks.fanout [--rounds N]`. A writer commits as fast as one viewer of its own keeps up, so no viewer is
driven into its bound; `wrk` reads with 500 connections on another core, and what it has read is compared with what was
committed: a viewer that was closed or missed something would show there.
"""

import argparse
import asyncio
import json
import re
import signal
import statistics
import time
from collections import deque
from typing import Any

import psutil

from benchmarks.streams import StreamStand, stream_stand, tool
from tests.support.delivery import Writer

VIEWERS = 500
WANTED = 50_000
"""Events a second to all viewers together."""
BATCHES = (10, 100)
"""Events in one commit: a busy turn's, and as many as it takes to keep the gateway's core busy."""
_AHEAD = 1000
_ALL = 0.97
"""wrk prints three digits, and sizes of events differ by some bytes."""
_UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}


class Progress:
    """A viewer that only looks for the newest sequence."""

    def __init__(self, port: int, session: str) -> None:
        self._port = port
        self._session = session
        self.sequence = 0
        self.event_bytes = 0

    async def run(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=2**22)
        request = (
            f"GET /v1/sessions/{self._session}/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"
        )
        writer.write(request.encode())
        tail = b""
        try:
            while data := await reader.read(2**20):
                tail = (tail + data)[-4096:]
                found = re.findall(rb"\nid: (\d+)\n", tail)
                if found:
                    self.sequence = int(found[-1])
                    starts = [match.start() for match in re.finditer(rb"id: \d+\n", tail)]
                    if len(starts) > 2:
                        self.event_bytes = starts[-1] - starts[-2]
        finally:
            writer.close()


async def one(stand: StreamStand, seconds: float, batch: int) -> dict[str, Any]:
    """One round. `batch`: events in one commit. `p50_ms`, `p99_ms`: from a batch's commit to a viewer."""
    session = await stand.session()
    progress = Progress(stand.gateway.port or 0, session.session)
    watching = asyncio.create_task(progress.run())
    url = f"{stand.gateway.url}/v1/sessions/{session.session}/events"
    options = ("-t1", f"-c{VIEWERS}", "-d120s", "--timeout", "60", "-H", "Accept: text/event-stream")
    reading = await asyncio.create_subprocess_exec(tool("wrk"), *options, url, stdout=asyncio.subprocess.PIPE)
    await _attached(stand)
    gateway = psutil.Process(stand.gateway.pid)
    before, begin = sum(gateway.cpu_times()[:2]), time.perf_counter()
    first = progress.sequence
    delays = await write(session, progress, seconds, batch)
    took = time.perf_counter() - begin
    busy = sum(gateway.cpu_times()[:2]) - before
    events = progress.sequence - first
    # wrk prints what it has read so far when it is interrupted.
    reading.send_signal(signal.SIGINT)
    out, _ = await reading.communicate()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    number, unit = re.search(rb"([\d.]+)([KMGT]?B) read", out).groups()  # type: ignore[union-attr]
    part = float(number) * _UNITS[unit.decode()] / (events * VIEWERS * progress.event_bytes)
    if part < _ALL:
        raise RuntimeError(f"the viewers have read {part:.3f} of what was committed: the rate says nothing")
    return {
        "events_per_second": round(events * VIEWERS / took),
        "committed_per_second": round(events / took),
        "cpu": round(busy / took, 2),
        "event_bytes": progress.event_bytes,
        "read_by_wrk": round(part, 3),
        "p50_ms": round(1000 * delays[len(delays) // 2], 1),
        "p99_ms": round(1000 * delays[len(delays) * 99 // 100], 1),
    }


async def write(session: Writer, progress: Progress, seconds: float, batch: int) -> list[float]:
    """Commit for so long; returns how long each batch took from its commit to the viewer, ascending."""
    begin = time.perf_counter()
    sent = progress.sequence
    waiting: deque[tuple[int, float]] = deque()
    delays: list[float] = []

    def seen() -> None:
        while waiting and waiting[0][0] <= progress.sequence:
            delays.append(time.perf_counter() - waiting.popleft()[1])

    while time.perf_counter() - begin < seconds:
        await session.append(batch, pad=20)
        sent += batch
        waiting.append((sent, time.perf_counter()))
        while sent - progress.sequence > _AHEAD:
            await asyncio.sleep(0.0005)
            seen()
        seen()
    while progress.sequence < sent:
        await asyncio.sleep(0.0005)
        seen()
    seen()
    return sorted(delays)


async def _attached(stand: StreamStand) -> None:
    gateway = psutil.Process(stand.gateway.pid)
    async with asyncio.timeout(20):
        while len([c for c in gateway.net_connections("tcp") if c.status == "ESTABLISHED"]) < VIEWERS:
            await asyncio.sleep(0.1)
    # Connected is not attached: each asks for the head first.
    while sum(gateway.cpu_times()[:2]) != await _cpu_later(gateway):
        pass


async def _cpu_later(gateway: psutil.Process) -> float:
    await asyncio.sleep(0.3)
    return sum(gateway.cpu_times()[:2])


async def run(rounds: int = 3, seconds: float = 3) -> dict[str, Any]:
    """Prints a line a round. `ratio`: the median of the smaller batches by what is wanted. Raises NotHere."""
    tool("wrk")
    found: dict[int, list[int]] = {batch: [] for batch in BATCHES}
    async with stream_stand(pinned=True) as stand:
        for number in range(rounds):
            for batch in BATCHES:
                result = await one(stand, seconds, batch)
                print(f"round {number + 1}: fan-out to {VIEWERS}, {batch} events a commit: {result}", flush=True)
                found[batch].append(result["events_per_second"])
    medians = {str(batch): statistics.median(rates) for batch, rates in found.items()}
    ratio = round(medians[str(BATCHES[0])] / WANTED, 2)
    return {"events_per_second": medians, "ratio": ratio, "wanted": 1.0}


def main() -> None:
    """Print the result as one JSON line; exit code 1 when it is not what it shall be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    result = asyncio.run(run(options.rounds, options.seconds))
    print(json.dumps(result))
    raise SystemExit(0 if result["ratio"] >= result["wanted"] else 1)


if __name__ == "__main__":
    main()
