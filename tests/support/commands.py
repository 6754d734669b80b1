"""The command line as a user runs it: by exec, in a directory of their own."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil

from tests.support.waiting import PATIENCE, eventually

TURNLOG = Path(sys.prefix) / "bin" / "turnlog"


def environment(**extra: str) -> dict[str, str]:
    """Ours without TURNLOG_* variables, which a developer may have set."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TURNLOG_")} | extra


async def turnlog(
    *words: str, stdin: str = "", cwd: Path | None = None, timeout: float = PATIENCE, **env: str
) -> tuple[int, str, str]:
    """Run one command to its end: exit code, standard output, standard error."""
    process = await asyncio.create_subprocess_exec(
        str(TURNLOG),
        *words,
        cwd=cwd,
        env=environment(**env),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(timeout):
            out, err = await process.communicate(stdin.encode())
    except TimeoutError:
        process.kill()
        out, err = await process.communicate()
        raise AssertionError(
            f"turnlog {words} has not ended within {timeout} s:\n{out.decode()}\n{err.decode()}"
        ) from None
    return process.returncode or 0, out.decode(), err.decode()


class Up:
    """A running `turnlog up`."""

    def __init__(self, process: asyncio.subprocess.Process, out: Path, err: Path, port: int) -> None:
        self.process = process
        self.port = port
        self._out = out
        self._err = err

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def printed(self) -> str:
        """Its standard output: what it invites to."""
        return self._out.read_text()

    @property
    def log(self) -> str:
        return self._err.read_text(errors="replace")

    def children(self, name: str) -> list[psutil.Process]:
        """Its running processes whose command line has that word, oldest first."""
        found = []
        for child in psutil.Process(self.process.pid).children(recursive=True):
            try:
                if name in " ".join(child.cmdline()) and child.status() != psutil.STATUS_ZOMBIE:
                    found.append(child)
            except psutil.NoSuchProcess:
                continue
        return sorted(found, key=lambda child: child.create_time())

    async def ready(self, timeout: float = 2 * PATIENCE) -> None:
        """Wait for the invitation."""

        async def invited() -> bool:
            if self.process.returncode is not None:
                raise AssertionError(f"turnlog up ended ({self.process.returncode}):\n{self.log[-4000:]}")
            return "Turnlog is up" in self.printed

        try:
            await eventually(invited, "turnlog up invites", timeout=timeout, pause=0.05)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log[-4000:]}") from None

    def line(self, label: str) -> str:
        """The command that the invitation prints behind that label."""
        found = re.search(rf"^{label}: +(.*)$", self.printed, re.MULTILINE)
        assert found is not None, self.printed
        return found[1]

    async def interrupt(self, timeout: float = PATIENCE) -> int:
        """Ctrl-C; its exit code."""
        self.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(timeout):
            return await self.process.wait()

    async def kill_everything(self) -> None:
        """kill -9 to all of it at once, the servers too."""
        victims = [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]
        for victim in victims:
            with suppress(psutil.NoSuchProcess):
                victim.kill()
        await self.process.wait()
        await asyncio.to_thread(psutil.wait_procs, victims, PATIENCE)


@asynccontextmanager
async def up(directory: Path, port: int, *words: str, cwd: Path | None = None, **env: str) -> AsyncIterator[Up]:
    """`turnlog up` with its data in `directory`; killed at the end if it still runs."""
    directory.mkdir(parents=True, exist_ok=True)
    out, err = directory / "up.out", directory / "up.err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            str(TURNLOG),
            "up",
            "--data",
            str(directory / "data"),
            "--port",
            str(port),
            *words,
            cwd=cwd,
            env=environment(**env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
        )
    running = Up(process, out, err, port)
    try:
        yield running
    except AssertionError as error:
        error.add_note(f"What `turnlog up` has said:\n{running.log[-6000:]}")
        raise
    finally:
        if process.returncode is None:
            await running.kill_everything()


async def lines_of(
    command: str, enough: Callable[[str], bool], *, timeout: float = PATIENCE, strict: bool = True
) -> str:
    """Run a shell command that does not end by itself until its output is enough; returns that, or, where `strict` is
    false, what there was in time."""
    process = await asyncio.create_subprocess_shell(
        f"exec {command}", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, env=environment()
    )
    assert process.stdout is not None
    seen = b""
    try:
        async with asyncio.timeout(timeout):
            while not enough(seen.decode(errors="replace")):
                got = await process.stdout.read(65536)
                if not got:
                    break
                seen += got
    except TimeoutError:
        if not strict:
            return seen.decode(errors="replace")
        raise AssertionError(
            f"not within {timeout} s: enough output of {command}; so far:\n{seen.decode()[-3000:]}"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    return seen.decode()
