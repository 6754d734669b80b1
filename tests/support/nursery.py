"""Processes that start in milliseconds: one that has imported everything forks the roles.

A role takes two seconds of CPU to import, a cluster has seven of them, and a fault test kills and starts dozens. What
is forked here is the command line itself, `turnlog ROLE`, with its own environment, session, output and pid. Tests of
the command line start it by exec, as users do.
"""

import ctypes
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import uuid_utils

ROOT = Path(__file__).resolve().parents[2]
_PR_SET_PDEATHSIG = 1
_PRELOADED = (
    "services.agent.main",
    "services.gateway.main",
    "services.worker.main",
    "services.projector.main",
    "services.cli.roles",
    "services.worker.runtimes.pydantic_ai.runtime",
    "tests.support.agents",
    "tests.support.lifecycle_agents",
)


class Nursery:
    """The forking process, as tests see it. Thread-safe; requests take milliseconds, so they block."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.nursery", str(theirs.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._file = ours.makefile("rw")
        self._lock = threading.Lock()

    def start(self, role: str, env: Mapping[str, str], log: Path) -> int:
        """The pid of a new process that runs `turnlog ROLE`."""
        return int(self._ask({"role": role, "env": dict(env), "log": str(log)}))

    def reap(self, pid: int) -> int:
        """The exit code (negative: the signal) of a process that has ended; waits for it otherwise."""
        return int(self._ask({"reap": pid}))

    def close(self) -> None:
        """End it; its children end with it."""
        self._process.kill()
        self._process.wait()
        self._file.close()

    def _ask(self, request: dict[str, Any]) -> Any:
        with self._lock:
            self._file.write(json.dumps(request) + "\n")
            self._file.flush()
            return json.loads(self._file.readline())


def serve(fd: int) -> None:
    """Answer requests until the other side is gone."""
    import turnlog_main  # noqa: F401  (pins our packages, as in every process of the command line)

    for name in _PRELOADED:
        importlib.import_module(name)
    with socket.socket(fileno=fd) as ours, ours.makefile("rw") as file:
        for line in file:
            request = json.loads(line)
            if "reap" in request:
                answer = os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1])
            else:
                answer = os.fork()
                if answer == 0:
                    _become(request, ours)
            file.write(json.dumps(answer) + "\n")
            file.flush()


def _become(request: dict[str, Any], ours: socket.socket) -> None:
    code = 70
    try:
        ours.close()
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        output = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.clear()
        os.environ.update(request["env"])
        from services.cli.main import run

        uuid_utils.reseed_rng()
        if release := os.environ.get("TESTS_RELEASE"):
            importlib.import_module(release).install()
        code = run([request["role"]])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001 (the root of this process: whatever it was, its log says it)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
