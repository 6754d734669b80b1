"""One real process of a role, started as a user would start it, and done to it what happens to processes."""

import asyncio
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class RoleProcess:
    """`turnlog gateway|agent|worker|projector` with an environment of its own. Its output goes to `log`."""

    def __init__(self, name: str, role: str, env: Mapping[str, str], log: Path, port: int | None = None) -> None:
        self.name = name
        self.role = role
        self.env = dict(env)
        self.log = log
        self.port = port
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The running process."""
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def returncode(self) -> int | None:
        return None if self._process is None else self._process.returncode

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self, **env: str) -> None:
        """Start it (again); `env` is set anew for this and later starts."""
        assert not self.alive, f"{self.name} runs"
        self.env.update(env)
        setpriv = shutil.which("setpriv")
        dying = [] if setpriv is None else [setpriv, "--pdeathsig", "KILL", "--"]
        turnlog = Path(sys.prefix) / "bin" / "turnlog"
        with self.log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *dying,
                sys.executable,
                str(turnlog),
                self.role,
                cwd=ROOT,
                env=self.env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    async def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        await self._end(signal.SIGKILL)

    async def terminate(self, timeout: float = 20.0) -> int:
        """SIGTERM; returns the exit code, or fails when it has not ended in time."""
        async with asyncio.timeout(timeout):
            return await self._end(signal.SIGTERM)

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
        """All it has written."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    async def wait(self) -> int:
        """Its exit code, once it ends by itself."""
        assert self._process is not None
        return await self._process.wait()

    async def _end(self, number: signal.Signals) -> int:
        if self.alive:
            self._signal(number)
            self._signal(signal.SIGCONT)
        return await self.wait() if self._process is not None else 0

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)
