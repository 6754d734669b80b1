"""One owner a data directory: an advisory lock that the server process inherits.

The lock belongs to the open file, and the server keeps that file open. So it is held as long as the process that
started the server or the server itself is alive, whatever kills either of them, and it needs no pid to be believed: a
pid file of ours that is found while the lock is ours is stale by definition.
"""

import fcntl
import os
import time
from pathlib import Path

from infra.embedded.errors import ServerAlreadyRunning

# How long a server whose parent was killed may take to end after it got the signal of its parent's death.
ORPHAN_SECONDS = 15.0


class DirectoryLock:
    """Exclusive; not reentrant. `fd` is to be passed to the server's process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    @property
    def fd(self) -> int:
        return self._fd

    def acquire(self) -> None:
        """Take the lock, or raise ServerAlreadyRunning with the holder's pid.

        Blocks (up to ORPHAN_SECONDS) only while the holder is dead and its server is still on its way out.
        """
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + ORPHAN_SECONDS
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                holder, server = _read(fd)
                if _alive(holder) or time.monotonic() > deadline:
                    os.close(fd)
                    pid = holder if _alive(holder) else server
                    raise ServerAlreadyRunning(place=self._path.parent, pid=pid or "unknown") from None
                time.sleep(0.05)
        self._fd = fd
        self.note(0)

    def note(self, server: int) -> None:
        """Write down who holds the lock, for the other one's error line."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()} {server}\n".encode(), 0)

    def release(self) -> None:
        """Let go; a server that still runs keeps the lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _read(fd: int) -> tuple[int, int]:
    words = os.pread(fd, 100, 0).decode().split()
    return (int(words[0]), int(words[1])) if len(words) == 2 else (0, 0)


def _alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
