"""A server as a child process: its own session, its log in a file, its data directory's lock in its hands."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from infra.embedded.account import Account

# Above this the log of earlier runs is set aside (one generation) before the next start.
_LOG_BYTES = 16 * 1024 * 1024


class ServerProcess:
    """One run of a server. Owned by whoever made it; must be ended by `end` or `kill` on the loop that made it.

    The kernel sends it `on_parent_death` when the *thread* that started it ends, so start it from a thread that lives
    as long as the server should. It runs in a session of its own, so that Ctrl-C on the terminal reaches the
    supervisor, which ends its servers last, and not the servers at once.
    """

    def __init__(self, process: asyncio.subprocess.Process, log: Path, offset: int) -> None:
        self._process = process
        self._log = log
        self._offset = offset

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        account: Account,
        on_parent_death: str,
        home: Path,
        log: Path,
        lock_fd: int,
        env: Mapping[str, str] | None = None,
    ) -> "ServerProcess":
        output = open_log(log)
        offset = output.tell()
        try:
            process = await asyncio.create_subprocess_exec(
                *account.command(list(argv), on_parent_death=on_parent_death),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=home,
                env={**plain_environment(home), **(env or {})},
                pass_fds=(lock_fd,),
                start_new_session=True,
            )
        finally:
            output.close()
        return cls(process, log, offset)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.returncode

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        return await self._process.wait()

    def log_of_this_run(self) -> str:
        """The end of what it has written since it was started."""
        with self._log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(self._offset, size - 8192))
            return file.read().decode(errors="replace")

    async def end(self, signals: Sequence[tuple[signal.Signals, float]]) -> None:
        """Send each signal in turn and give it its seconds; then SIGKILL. Returns when the process is gone."""
        for number, seconds in signals:
            self._send(number)
            try:
                async with asyncio.timeout(seconds):
                    await self._process.wait()
                return
            except TimeoutError:
                continue
        await self.kill()

    async def kill(self) -> None:
        """SIGKILL to it and to its children, as a power cut would; returns when all of them are gone."""
        if self.returncode is not None:
            return
        children = _children_of(self.pid)
        self._send(signal.SIGKILL)
        for child in children:
            try:
                os.kill(child, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        await self._process.wait()
        while any(_runs(child) for child in children):
            await asyncio.sleep(0.01)

    def _send(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            self._process.send_signal(number)


def open_log(path: Path) -> IO[bytes]:
    """The log, open at its end."""
    if path.exists() and path.stat().st_size > _LOG_BYTES:
        path.rename(path.with_suffix(".log.1"))
    file = path.open("ab")
    file.seek(0, os.SEEK_END)
    return file


def plain_environment(home: Path) -> dict[str, str]:
    """No variable of ours or of the user's reaches a server: neither TURNLOG_* secrets nor a stray PGPORT."""
    return {"PATH": os.defpath, "HOME": str(home), "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def _children_of(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # no /proc here, or already gone
        return []


def _runs(pid: int) -> bool:
    """Whether the process still executes; one that nobody has reaped yet does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")
