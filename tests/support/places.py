"""Directories for servers of tests.

Not pytest's tmp_path: that is closed to others, and as root the servers run under an account that is one of them.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MEMORY = Path("/dev/shm")
_ROOM = 4 * 1024**3
"""Bytes that must be free in memory: what servers of tests never fill."""


@contextmanager
def shared_directory() -> Iterator[Path]:
    """The same for servers that all tests of a run share and none of them stops: in memory where there is room, since
    a disk's fsync is most of what creating and dropping their hundreds of databases takes."""
    with server_directory(_MEMORY if _has_room(_MEMORY) else None) as directory:
        yield directory


def _has_room(place: Path) -> bool:
    return place.is_dir() and os.access(place, os.W_OK) and shutil.disk_usage(place).free > _ROOM


@contextmanager
def server_directory(below: Path | None = None) -> Iterator[Path]:
    """A directory that the embedded servers' account can reach, removed at the end; where temporary files are, unless
    said otherwise."""
    directory = Path(tempfile.mkdtemp(prefix="turnlog-tests-", dir=below))
    if os.geteuid() == 0:
        directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
