"""All benchmarks: `python -m benchmarks [--full] [--only NAME …]`; `make bench` and `make bench-full`.

Each runs in a process of its own, one after the other, and prints a line a round. What counts are ratios within one
run: absolute figures are this machine's. At the end there is a table; the exit code is 1 when a ratio is below what
is wanted, and 2 when none was, but something could not run here.
"""

import argparse
import asyncio
import gc
import importlib
import json
import subprocess
import sys
import time
from typing import Any

import uvloop

from benchmarks.streams import NotHere

_QUICK: dict[str, dict[str, Any]] = {
    "turns": {"rounds": 3},
    "replay": {"rounds": 3, "events": 100_000},
    "fanout": {"rounds": 3},
    "idle": {"rounds": 3},
    "rebuild": {"rounds": 3, "sessions": 500, "events": 20_000},
    "appends": {"rounds": 3, "sessions": 300, "seconds": 3.0},
    "audit": {"rounds": 3, "sessions": 300, "events": 20_000},
}
_FULL: dict[str, dict[str, Any]] = {
    "turns": {"rounds": 7, "sessions": 400},
    "replay": {"rounds": 7, "events": 400_000},
    "fanout": {"rounds": 7, "seconds": 10},
    "idle": {"rounds": 5, "viewers": 4000},
    "rebuild": {"rounds": 5, "sessions": 5000, "events": 1_000_000},
    "appends": {"rounds": 7, "sessions": 2000, "seconds": 10.0},
    "audit": {"rounds": 3, "sessions": 5000, "events": 1_000_000},
}
_COULD_NOT = 2


def run_here(name: str, *, full: bool) -> int:
    """One benchmark in this process; its last line is its result as JSON."""
    module = importlib.import_module(f"benchmarks.{name}")
    # As our commands have it, for what they are measured against, too.
    gc.set_threshold(50_000, 20, 50)
    try:
        runner = uvloop.run if getattr(module, "AS_COMMANDS_RUN", False) else asyncio.run
        print(json.dumps(runner(module.run(**(_FULL if full else _QUICK)[name]))))
    except NotHere as lacking:
        print(lacking)
        return _COULD_NOT
    return 0


def run_apart(name: str, *, full: bool) -> tuple[int, str]:
    """The same in a process of its own; the exit code and the last line."""
    command = [sys.executable, "-m", "benchmarks", "--here", name, *(["--full"] if full else [])]
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last = line.strip()
            if not last.startswith("{"):
                print(line, end="", flush=True)
    return process.returncode, last


def row(name: str, code: int, last: str, seconds: float) -> tuple[int, str]:
    """A line of the table, and what it is worth as an exit code."""
    if code == _COULD_NOT:
        return _COULD_NOT, f"{name:8} not measured: {last}"
    if code:
        return 1, f"{name:8} FAILED with exit code {code}"
    result = json.loads(last)
    fine = result["ratio"] >= result["wanted"]
    figures = {key: value for key, value in result.items() if key not in ("ratio", "wanted")}
    verdict = "fine" if fine else "BELOW"
    return int(not fine), (
        f"{name:8} ratio {result['ratio']:.2f}, wanted {result['wanted']:.2f}: {verdict} ({seconds:.0f} s) {figures}"
    )


def main() -> None:
    """Exit code 0, 1 or 2, as said above."""
    parser = argparse.ArgumentParser(
        prog="benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="more rounds and larger sizes")
    parser.add_argument("--only", nargs="+", choices=list(_QUICK), default=list(_QUICK), metavar="NAME")
    parser.add_argument("--here", choices=list(_QUICK), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here is not None:
        raise SystemExit(run_here(given.here, full=given.full))
    rows = []
    for name in given.only:
        begun = time.monotonic()
        rows.append(row(name, *run_apart(name, full=given.full), time.monotonic() - begun))
    print("\n".join(["", *(line for _, line in rows)]))
    worth = {code for code, _ in rows}
    raise SystemExit(1 if 1 in worth else max(worth))


if __name__ == "__main__":
    main()
