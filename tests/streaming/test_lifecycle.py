"""A serving process ends in time, whatever its clients do."""

import asyncio
import contextlib
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator

import pytest

from services.lifecycle import listen
from tests.support.peers import raw_stream
from tests.support.streaming import watching


@contextlib.asynccontextmanager
async def serving(drain_seconds: float) -> AsyncIterator[tuple[Process, int]]:
    command = (sys.executable, "-m", "tests.streaming.serving", str(drain_seconds))
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(15):
            yield process, int(await process.stdout.readline())
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.alone
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_exit_within_a_second_after_the_drain_with_peers_that_never_read(number: signal.Signals) -> None:
    loop = asyncio.get_running_loop()
    async with (
        serving(1.0) as (process, port),
        watching(f"http://127.0.0.1:{port}") as (client,),
        raw_stream(port, "session"),
        raw_stream(port, "session", after=2000),
    ):
        streams = [await client.stream("session", 1990).opened() for _ in range(5)]
        for stream in streams:
            await stream.sequence(2000)
        start = loop.time()
        process.send_signal(number)
        assert await process.wait() == 0
        assert loop.time() - start < 1.0 + 1.0
        for stream in streams:
            await stream.end()
            assert stream.frames[-1].json == {"reason": "draining"}


async def test_a_second_signal_changes_nothing() -> None:
    async with serving(0.5) as (process, port), watching(f"http://127.0.0.1:{port}") as (client,):
        stream = await client.stream("session", 1999).opened()
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        await stream.end()
        assert stream.frames[-1].json == {"reason": "draining"}


def test_accepted_connections_inherit_the_user_timeout() -> None:
    with listen("127.0.0.1", 0, 7.5) as listener, socket.create_connection(listener.getsockname()):
        listener.setblocking(True)
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 7_500
