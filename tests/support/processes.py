"""One real process of a role, and done to it what happens to processes."""

import asyncio
import os
import select
import signal
from collections.abc import Mapping
from pathlib import Path

from tests.support.nursery import Nursery
from tests.support.waiting import PATIENCE


class RoleProcess:
    """`turnlog gateway|agent|worker|projector` with an environment of its own. Its output goes to `log`."""

    def __init__(
        self, nursery: Nursery, name: str, role: str, env: Mapping[str, str], log: Path, port: int | None = None
    ) -> None:
        self.name = name
        self.role = role
        self.env = dict(env)
        self.log = log
        self.port = port
        self._nursery = nursery
        self._pid: int | None = None
        self._fd = -1
        self._code: int | None = None
        self._written = 0

    @property
    def pid(self) -> int:
        """Of the newest start."""
        assert self._pid is not None, f"{self.name} was not started"
        return self._pid

    @property
    def alive(self) -> bool:
        """Started and not known to have ended: asks the kernel, without waiting."""
        if self._pid is not None and self._code is None and _ended(self._fd):
            self._settle()
        return self._pid is not None and self._code is None

    @property
    def returncode(self) -> int | None:
        """Of the newest start; negative: the signal that ended it."""
        return None if self.alive else self._code

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self, **env: str) -> None:
        """Start it (again); `env` is set anew for this and later starts."""
        assert not self.alive, f"{self.name} runs"
        self.env.update(env)
        self._code = None
        self._written = self.log.stat().st_size if self.log.exists() else 0
        self._pid = self._nursery.start(self.role, self.env, self.log)
        self._fd = os.pidfd_open(self._pid)

    async def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self._signal(signal.SIGKILL)
        await self.wait()

    async def terminate(self, timeout: float = PATIENCE) -> int:
        """SIGTERM; returns the exit code, or fails when it has not ended in time."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(timeout):
                return await self.wait()
        except TimeoutError:
            raise AssertionError(
                f"{self.name} has not ended within {timeout} s of SIGTERM:\n{self.text()[-2000:]}"
            ) from None

    async def restart(self, **env: str) -> None:
        """kill -9 and start anew, on the same port."""
        await self.kill()
        await self.start(**env)

    def freeze(self) -> None:
        """SIGSTOP: it holds everything and does nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def text(self) -> str:
        """All it has written, over all its starts."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def lately(self) -> str:
        """What it has written since its newest start."""
        return self.log.read_bytes()[self._written :].decode(errors="replace") if self.log.exists() else ""

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        if self.alive:
            loop = asyncio.get_running_loop()
            readable = asyncio.Event()
            loop.add_reader(self._fd, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(self._fd)
            if self._code is None:
                self._settle()
        return self._code or 0

    def _settle(self) -> None:
        self._code = self._nursery.reap(self.pid)
        os.close(self._fd)

    def _signal(self, number: signal.Signals) -> None:
        if self.alive:
            signal.pidfd_send_signal(self._fd, number)
            if number in (signal.SIGTERM, signal.SIGKILL):
                signal.pidfd_send_signal(self._fd, signal.SIGCONT)


def _ended(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])
