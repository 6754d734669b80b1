"""Life of a process that serves: signals, readiness, the HTTP server, and an end that comes in time.

SIGTERM or SIGINT → readiness false → `drain` → the listening socket closes → what is left is cut: the process is gone
within a second after its drain. uvicorn, because of what ADR 0002 measured; it runs in the role's own loop and owns
no signal."""

import asyncio
import contextlib
import signal
import socket
from asyncio import TaskGroup
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import uvicorn
import uvloop

from services.protocol import LimitedProtocol

BACKLOG = 2_048

_KEEP_ALIVE_SECONDS = 75
_CUT_SECONDS = 0.25


def run(role: Coroutine[Any, Any, int]) -> int:
    """Runs a role's main in the event loop that the servers are measured with; returns its exit code."""
    return uvloop.run(role)


class Life:
    """Whether this process is to end. `ready` turns false before anything is closed, so that a balancer sends nobody
    new."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()

    @property
    def ready(self) -> bool:
        return not self.stopping.is_set()

    def stop(self) -> None:
        """Idempotent; a second signal changes nothing."""
        self.stopping.set()

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT stop this life while the block runs."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)


def listen(host: str, port: int, user_timeout: float = 30.0) -> socket.socket:
    """A listening socket; port 0 takes a free one. Accepted connections inherit TCP_USER_TIMEOUT: a peer that
    vanished, or that takes nothing for so many seconds, is given up by the kernel. Raises OSError."""
    family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, proto)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(user_timeout * 1000))
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The role owns its signals."""
        yield


async def serve(
    app: Any,
    listener: socket.socket,
    life: Life,
    *,
    drain: Callable[[], Awaitable[None]] | None = None,
    protocol: type[LimitedProtocol] = LimitedProtocol,
) -> None:
    """Serves until `life` stops, then waits for `drain` and ends within a second. Connections are still accepted
    while draining: the app answers them."""
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)

    async def end() -> None:
        await life.stopping.wait()
        if drain is not None:
            await drain()
        server.should_exit = True
        # uvicorn would wait for peers that never read what is left for them.
        await asyncio.sleep(_CUT_SECONDS)
        for connection in list(server.server_state.connections):
            connection.transport.abort()

    async with TaskGroup() as tasks:
        ending = tasks.create_task(end())
        await server.serve([listener])
        ending.cancel()
