"""PostgreSQL servers that a whole test run shares (each xdist worker has its own), started when first asked for.

They run on an event loop in a thread of their own, because a session outlives each test's loop, and because a server
ends with the thread that started it.
"""

import asyncio
import subprocess
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from infra.embedded import EmbeddedPostgres

T = TypeVar("T")

# Versions that are not in the wheel and where Debian's packages put them.
INSTALLED = {"15": Path("/usr/lib/postgresql/15/bin")}


class LoopThread:
    """An event loop in a thread; `run` waits for a coroutine's result there."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="servers", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class SharedPostgres:
    """One running server a version, and freshly initialised data for servers that a test wants for itself."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._thread = LoopThread()
        self._running: dict[str, EmbeddedPostgres] = {}

    def server(self, version: str) -> EmbeddedPostgres:
        if version not in self._running:
            server = EmbeddedPostgres(
                self._directory / f"postgres-{version}", version=version, binaries=INSTALLED.get(version)
            )
            self._thread.run(server.start())
            self._running[version] = server
        return self._running[version]

    def copy_fresh_data(self, version: str, target: Path) -> None:
        """Make `target` the directory of a server that was initialised and never used (initdb takes a second)."""
        fresh = self._directory / f"fresh-{version}"
        if not fresh.exists():
            server = EmbeddedPostgres(fresh, version=version, binaries=INSTALLED.get(version))
            self._thread.run(server.start())
            self._thread.run(server.stop())
            (fresh / "port").unlink()
        subprocess.run(["cp", "-a", str(fresh), str(target)], check=True)

    def close(self) -> None:
        for server in self._running.values():
            self._thread.run(server.stop())
        self._thread.close()
