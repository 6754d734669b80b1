"""Memory of an idle viewer: resident bytes that a gateway gains for each of many open, silent streams.

`python -m benchmarks.idle [--rounds N] [--viewers N]`. Each round has a gateway process of its own, warmed up by some
streams that were closed again; the viewers are spread over sessions, each with a subscription.
"""

import argparse
import asyncio
import json
import socket
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import psutil

from benchmarks.streams import StreamStand, stream_stand

ALLOWED = 40
"""KiB."""
SESSIONS = 50
_WARM = 300
_BROWSER = (
    "Accept: text/event-stream\r\nCache-Control: no-cache\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n"
    "Accept-Language: en-GB,en;q=0.9\r\nReferer: http://127.0.0.1/\r\nSec-Fetch-Mode: cors\r\n"
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36\r\n"
)


async def opened(port: int, session: str) -> socket.socket:
    """A connection that has got its first frame."""
    loop = asyncio.get_running_loop()
    peer = socket.socket()
    peer.setblocking(False)
    await loop.sock_connect(peer, ("127.0.0.1", port))
    request = f"GET /v1/sessions/{session}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n{_BROWSER}Last-Event-ID: 3\r\n\r\n"
    await loop.sock_sendall(peer, request.encode())
    answer = b""
    while b"stream.open" not in answer:
        data = await loop.sock_recv(peer, 65536)
        assert data, answer
        answer += data
    return peer


async def fill(stack: ExitStack, port: int, sessions: Sequence[str], count: int) -> None:
    """So many streams, a hundred at a time."""
    for start in range(0, count, 100):
        batch = range(start, min(start + 100, count))
        for peer in await asyncio.gather(*(opened(port, sessions[n % len(sessions)]) for n in batch)):
            stack.enter_context(peer)


async def one(stand: StreamStand, sessions: Sequence[str], viewers: int) -> dict[str, Any]:
    port = stand.gateway.port or 0
    with ExitStack() as stack:
        await fill(stack, port, sessions, _WARM)
    gateway = psutil.Process(stand.gateway.pid)
    await asyncio.sleep(1.0)
    before = gateway.memory_info().rss
    with ExitStack() as stack:
        await fill(stack, port, sessions, viewers)
        await asyncio.sleep(1.0)
        each = (gateway.memory_info().rss - before) / viewers
        gateway.cpu_percent()
        await asyncio.sleep(3.0)
        cpu = gateway.cpu_percent()
    return {"viewers": viewers, "kib_each": round(each / 1024, 1), "cpu_percent_idle": round(cpu, 1)}


async def run(rounds: int = 3, viewers: int = 1000) -> dict[str, Any]:
    """Prints a line a round. `ratio`: what is allowed by the median."""
    found = []
    async with stream_stand(pinned=False) as stand:
        sessions = [(await stand.session()).session for _ in range(SESSIONS)]
        for number in range(rounds):
            await stand.gateway.restart()
            await stand.cluster.ready()
            result = await one(stand, sessions, viewers)
            print(f"round {number + 1}: idle viewers: {result}", flush=True)
            found.append(result["kib_each"])
    median = statistics.median(found)
    return {"kib_each": median, "allowed": ALLOWED, "ratio": round(ALLOWED / median, 2), "wanted": 1.0}


def main() -> None:
    """Print the result as one JSON line; exit code 1 when it is not what it shall be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--viewers", type=int, default=1000)
    options = parser.parse_args()
    result = asyncio.run(run(options.rounds, options.viewers))
    print(json.dumps(result))
    raise SystemExit(0 if result["ratio"] >= result["wanted"] else 1)


if __name__ == "__main__":
    main()
