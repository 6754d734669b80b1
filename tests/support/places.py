"""Directories for servers of tests.

Not pytest's tmp_path: that is closed to others, and as root the servers run under an account that is one of them.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def server_directory() -> Iterator[Path]:
    """A directory that the embedded servers' account can reach, removed at the end."""
    directory = Path(tempfile.mkdtemp(prefix="turnlog-tests-"))
    if os.geteuid() == 0:
        directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
