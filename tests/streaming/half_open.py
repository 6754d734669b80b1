"""Peers that vanish without a word: `unshare -n python -m tests.streaming.half_open`, as root.

The gateway is in this network namespace and its viewers are in another one, behind a virtual cable that is pulled: no
packet comes back, not even a reset. Prints one line of JSON."""

import asyncio
import ctypes
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

from services.gateway.sse.hub import Hub
from services.gateway.sse.limits import Limits
from services.gateway.sse.peer import StreamProtocol
from services.lifecycle import Life, listen, run, serve
from tests.support.streaming import FakeBroker, Log, stream_app

HERE, THERE = "10.77.0.1", "10.77.0.2"
COMMENT_SECONDS, USER_TIMEOUT_SECONDS = 0.5, 1.5
CLONE_NEWNET = 0x40000000


def command(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


@contextmanager
def elsewhere() -> Iterator[int]:
    """Another namespace at the end of a cable; its process id."""
    child = subprocess.Popen(["unshare", "-n", "sleep", "600"])
    try:
        ours, own = os.readlink("/proc/self/ns/net"), ""
        while own in ("", ours):
            own = os.readlink(f"/proc/{child.pid}/ns/net")
        there = ("nsenter", "-t", str(child.pid), "-n")
        command("ip", "link", "set", "lo", "up")
        command("ip", "link", "add", "here", "type", "veth", "peer", "name", "there")
        command("ip", "link", "set", "there", "netns", str(child.pid))
        command("ip", "addr", "add", f"{HERE}/24", "dev", "here")
        command("ip", "link", "set", "here", "up")
        command(*there, "ip", "addr", "add", f"{THERE}/24", "dev", "there")
        command(*there, "ip", "link", "set", "there", "up")
        yield child.pid
    finally:
        child.kill()
        child.wait()


def sockets_of(pid: int, count: int) -> list[socket.socket]:
    """So many sockets of that namespace: a socket belongs to the one its thread is in when it is made."""
    made: list[socket.socket] = []

    def make() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        with open(f"/proc/{pid}/ns/net") as namespace:
            if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        made.extend(socket.socket() for _ in range(count))

    thread = Thread(target=make)
    thread.start()
    thread.join()
    return made


async def ask(peer: socket.socket, port: int, session: str) -> None:
    loop = asyncio.get_running_loop()
    peer.setblocking(False)
    await loop.sock_connect(peer, (HERE, port))
    await loop.sock_sendall(peer, f"GET /v1/sessions/{session}/events HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert b"stream.open" in await loop.sock_recv(peer, 65536)


async def watched(pid: int) -> dict[str, object]:
    """Four viewers: one of a silent session, one that is sent events, one in the middle of a long replay, one that is
    on its way out; then the cable is pulled."""
    log, broker, life = Log(page_bytes=64 * 1024), FakeBroker(), Life()
    for session in ("silent", "busy", "leaving"):
        log.append(session)
    for _ in range(4_000):
        log.append("long", pad=4_000)
    limits = Limits(comment_seconds=COMMENT_SECONDS, linger_seconds=USER_TIMEOUT_SECONDS, heads_seconds=60)
    async with Hub(log, broker, limits) as hub:
        listener = listen(HERE, 0, USER_TIMEOUT_SECONDS)
        port = listener.getsockname()[1]
        serving = asyncio.create_task(serve(stream_app(hub), listener, life, protocol=StreamProtocol))

        def held() -> list[int]:
            return [hub.viewers, broker.subscriptions, len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())]

        first, *peers = sockets_of(pid, 5)
        # A first one, after which everything is there that a server needs.
        await ask(first, port, "silent")
        first.close()
        while hub.viewers:
            await asyncio.sleep(0.01)
        before = held()
        for peer, session in zip(peers, ("silent", "busy", "long", "leaving"), strict=True):
            await ask(peer, port, session)
        while hub.viewers < 4:
            await asyncio.sleep(0.01)
        command("nsenter", "-t", str(pid), "-n", "ip", "link", "set", "there", "down")
        pulled = time.monotonic()
        broker.control("leaving", "revoked")
        noticed: dict[int, float] = {}
        while held() != before and time.monotonic() - pulled < 30:
            broker.event("busy", log.append("busy"))
            noticed.setdefault(hub.viewers, round(time.monotonic() - pulled, 2))
            await asyncio.sleep(0.02)
        after, took = held(), time.monotonic() - pulled
        for peer in peers:
            peer.close()
        life.stop()
        await serving
    return {"before": before, "after": after, "seconds": round(took, 2), "viewers_at": noticed}


async def main() -> int:
    with elsewhere() as pid:
        print(json.dumps(await watched(pid)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(run(main()))
