"""What the two embedded servers have in common: one owner a data directory, start, end, and recovery from any crash."""

import asyncio
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from infra.embedded.binaries import SHELTER
from infra.embedded.errors import ServerFailed, UnreachablePlace
from infra.embedded.lock import DirectoryLock
from infra.embedded.passwords import Passwords
from infra.embedded.place import Place
from infra.embedded.process import ServerProcess


class EmbeddedServer(ABC):
    """Guarantees: one server a data directory (ServerAlreadyRunning otherwise); after a crash of the server, of us or
    of both, `start` recovers by itself; a server whose starter is killed ends too.

    Not for concurrent use: one task calls start, stop, restart and kill, all on one event loop.
    """

    program: ClassVar[str]
    # Sent by the kernel when we die: the server's orderly end.
    on_parent_death: ClassVar[str]
    # What `stop` sends, with the seconds each is given; SIGKILL follows.
    stop_signals: ClassVar[Sequence[tuple[signal.Signals, float]]]

    def __init__(self, directory: Path, *, port: int | None, start_timeout: float, shelter: Path = SHELTER) -> None:
        self.host = "127.0.0.1"
        self.port = 0
        self._place = Place(directory, shelter=shelter)
        self._passwords = Passwords(self._place.passwords)
        self._shelter = shelter
        self._wanted_port = port
        self._start_timeout = start_timeout
        self._lock = DirectoryLock(self._place.lock)
        self._process: ServerProcess | None = None

    @property
    def log(self) -> Path:
        return self._place.log

    @property
    def pid(self) -> int | None:
        """The server's, while it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self) -> None:
        """Start the server; returns once it is ready for its clients.

        Raises EmbeddedError; then nothing of ours is left running. Does nothing while it runs.
        """
        if self.pid is not None:
            return
        try:
            await asyncio.to_thread(self._prepare)
            await self._launch()
        except BaseException:
            await self.kill()
            raise

    async def stop(self) -> None:
        """Orderly end: everything is on disk when this returns. Repeating it is fine."""
        if self._process is not None:
            await self._process.end(self.stop_signals)
            self._process = None
        self._lock.release()

    async def restart(self) -> None:
        """Stop and start on the same port."""
        self._wanted_port = self._wanted_port or self.port
        await self.stop()
        await self.start()

    async def kill(self) -> None:
        """SIGKILL to the server and all its processes, as a crash of the machine would; `start` recovers."""
        if self._process is not None:
            await self._process.kill()
            self._process = None
        self._lock.release()

    async def wait(self) -> int:
        """Exit code of the running server, once it ends by itself: for the one who supervises it."""
        if self._process is None:
            raise RuntimeError("the server was not started")
        return await self._process.wait()

    @abstractmethod
    def _install(self) -> None:
        """Under the lock, in a thread: find the binaries and make or check the data."""

    @abstractmethod
    def _configure(self) -> list[str]:
        """Before each attempt: write the files for `self.port`; returns the command line."""

    @abstractmethod
    async def _is_ready(self, pid: int) -> bool: ...

    @abstractmethod
    def _may_retry(self, printed: str) -> bool:
        """Whether what a failed attempt printed is something the next attempt can do better."""

    @abstractmethod
    def _reason(self, printed: str) -> str:
        """The one line that says why, of what it printed."""

    def _prepare(self) -> None:
        try:
            self._place.prepare()
            self._lock.acquire()
            self._install()
        except PermissionError as error:
            remedy = f"{error.filename} belongs to somebody else; choose another --data"
            raise UnreachablePlace(place=self._place.root, uid=os.geteuid(), remedy=remedy) from error

    async def _launch(self) -> None:
        deadline = time.monotonic() + self._start_timeout
        while True:
            self.port = self._place.port(self._wanted_port)
            process = self._process = await ServerProcess.start(
                self._configure(),
                account=self._place.account,
                on_parent_death=self.on_parent_death,
                home=self._place.home,
                log=self._place.log,
                lock_fd=self._lock.fd,
            )
            self._lock.note(process.pid)
            while process.returncode is None and time.monotonic() < deadline:
                if await self._is_ready(process.pid):
                    return
                await asyncio.sleep(0.01)
            printed = process.log_of_this_run()
            if process.returncode is None or time.monotonic() > deadline or not self._may_retry(printed):
                raise ServerFailed(program=self.program, reason=self._reason(printed), log=self._place.log)
            await asyncio.sleep(0.1)


def telling_line(printed: str, signs: Sequence[str]) -> str:
    """The last line with one of `signs`, else the last line."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    telling = [line for line in lines if any(sign in line for sign in signs)]
    return (telling or lines or ["it printed nothing"])[-1]
