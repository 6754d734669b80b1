"""One supervised process of `turnlog up`: started, its output passed on line by line, restarted when it dies."""

import asyncio
import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_FIRST_BACKOFF_SECONDS = 0.2
_LAST_BACKOFF_SECONDS = 5.0
# Whoever has run this long was not broken from the start: its next death begins the backoff anew.
_SETTLED_SECONDS = 10.0
# A line longer than this is cut in two; a log line never is, a runaway print may be.
_LINE_BYTES = 64 * 1024

Log = Callable[[str, str], None]
"""Takes a child's name and one line of it."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What to run. `name` is unique among the children, `role` says when it is stopped."""

    name: str
    role: str
    argv: tuple[str, ...]
    env: Mapping[str, str]


class Child:
    """Restarts its process until told to stop. `broken` is set when the very first run ended with exit code 2: the
    process could not run and has said why, so that starting it again would only say it again."""

    def __init__(self, spec: ChildSpec, log: Log) -> None:
        self.spec = spec
        self.broken = asyncio.Event()
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The running process."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def run(self) -> None:
        """Until `stop`: start, wait, start again."""
        backoff = _FIRST_BACKOFF_SECONDS
        runs = 0
        while not self._stopping.is_set():
            clock = asyncio.get_running_loop().time
            began = clock()
            code = await self._once()
            runs += 1
            if self._stopping.is_set():
                return
            if code == 2 and runs == 1:
                self.broken.set()
                return
            if clock() - began > _SETTLED_SECONDS:
                backoff = _FIRST_BACKOFF_SECONDS
            self._log(self.spec.name, f"ended ({_ending(code)}); starting it again in {backoff:.1f} s")
            try:
                async with asyncio.timeout(backoff):
                    await self._stopping.wait()
            except TimeoutError:
                backoff = min(_LAST_BACKOFF_SECONDS, backoff * 2)

    async def stop(self, patience: float) -> None:
        """SIGTERM, then after `patience` seconds SIGKILL; returns when the process is gone."""
        self._stopping.set()
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        # A stopped process would not see it.
        process.send_signal(signal.SIGCONT)
        try:
            async with asyncio.timeout(patience):
                await process.wait()
        except TimeoutError:
            self._log(self.spec.name, f"has not ended within {patience:.0f} s: killed")
            process.kill()
            await process.wait()

    def kill(self) -> None:
        """SIGKILL at once."""
        self._stopping.set()
        if self.pid is not None and self._process is not None:
            self._process.kill()

    async def _once(self) -> int:
        # In a session of its own, so that Ctrl-C at the terminal reaches only the supervisor, which stops in order.
        self._process = await asyncio.create_subprocess_exec(
            *_dying_with_us(self.spec.argv),
            env=dict(self.spec.env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        if self._stopping.is_set():  # told to stop while it was being started
            self._process.terminate()
        assert self._process.stdout is not None
        pump = asyncio.create_task(self._pump(self._process.stdout))
        try:
            return await self._process.wait()
        finally:
            # What the process started may hold its output open; what it printed itself is there by now.
            await asyncio.wait({pump}, timeout=1)
            pump.cancel()

    async def _pump(self, output: asyncio.StreamReader) -> None:
        rest = b""
        while got := await output.read(_LINE_BYTES):
            *lines, rest = (rest + got).split(b"\n")
            for line in lines:
                self._log(self.spec.name, line.decode(errors="replace"))
            if len(rest) > _LINE_BYTES:
                self._log(self.spec.name, rest.decode(errors="replace"))
                rest = b""
        if rest:
            self._log(self.spec.name, rest.decode(errors="replace"))


def _dying_with_us(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The same command, which gets SIGTERM when the supervisor is killed: its port is free for the next start then.

    Without setpriv (not Linux) a child of a killed supervisor goes on and has to be ended by hand.
    """
    setpriv = shutil.which("setpriv")
    return argv if setpriv is None else (setpriv, "--pdeathsig", "TERM", "--", *argv)


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
