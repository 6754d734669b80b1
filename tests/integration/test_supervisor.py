"""The supervisor of `turnlog up` with real processes."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from services.cli.child import Child, ChildSpec
from services.cli.supervisor import Supervisor
from tests.support.waiting import eventually

SERVE = """
import signal, sys, time
print("up", flush=True)
signal.signal(signal.SIGTERM, lambda *_: (print("bye", flush=True), sys.exit(0)))
while True: time.sleep(0.05)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
while True: time.sleep(0.05)
"""
BROKEN = "import sys; print('cannot: no such agent', flush=True); sys.exit(2)"
CRASHES = "import os; print('crash', flush=True); os._exit(1)"


class Lines:
    """What the children have said."""

    def __init__(self) -> None:
        self.all: list[tuple[str, str]] = []

    def __call__(self, name: str, line: str) -> None:
        self.all.append((name, line))

    def count(self, name: str, line: str) -> int:
        return self.all.count((name, line))

    async def wait(self, name: str, line: str, times: int = 1) -> None:
        async def said() -> bool:
            return self.count(name, line) >= times

        await eventually(said, f"{name} says {line!r} {times} times")


def spec(name: str, role: str, code: str) -> ChildSpec:
    return ChildSpec(name, role, (sys.executable, "-c", code), dict(os.environ))


async def test_a_killed_child_is_started_again_and_all_end_in_order() -> None:
    lines = Lines()
    stop = asyncio.Event()
    roles = ("agent", "gateway", "worker", "projector")
    supervisor = Supervisor([spec(f"{role}-0", role, SERVE) for role in roles], lines)
    running = asyncio.create_task(supervisor.run(stop, patience=5))
    for role in roles:
        await lines.wait(f"{role}-0", "up")
    victim = next(child for child in supervisor.children if child.spec.role == "worker")
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    await lines.wait("worker-0", "up", times=2)
    stop.set()
    assert await running is None
    assert all(child.pid is None for child in supervisor.children)
    order = [name for name, line in lines.all if line == "bye"]
    assert order[:2] == ["gateway-0", "worker-0"]
    assert sorted(order[2:]) == ["agent-0", "projector-0"]


async def test_one_that_cannot_run_at_all_ends_everything() -> None:
    lines = Lines()
    supervisor = Supervisor([spec("gateway-0", "gateway", SERVE), spec("worker-0", "worker", BROKEN)], lines)
    broken = await supervisor.run(asyncio.Event(), patience=5)
    assert broken is not None
    assert broken.spec.name == "worker-0"
    assert lines.count("worker-0", "cannot: no such agent") == 1
    assert all(child.pid is None for child in supervisor.children)


async def test_one_that_crashes_is_tried_again_ever_more_slowly() -> None:
    lines = Lines()
    child = Child(spec("worker-0", "worker", CRASHES), lines)
    running = asyncio.create_task(child.run())
    await lines.wait("worker-0", "ended (exit code 1); starting it again in 0.4 s")
    await child.stop(1)
    await running
    said = [line for _, line in lines.all if line.startswith("ended")]
    assert said[:2] == [f"ended (exit code 1); starting it again in {pause} s" for pause in ("0.2", "0.4")]


async def test_one_that_does_not_end_is_killed() -> None:
    lines = Lines()
    child = Child(spec("worker-0", "worker", STUBBORN), lines)
    running = asyncio.create_task(child.run())
    await lines.wait("worker-0", "up")
    await child.stop(0.2)
    await running
    assert child.pid is None
    assert lines.all[-1] == ("worker-0", "has not ended within 0 s: killed")


async def test_a_frozen_child_ends_too() -> None:
    lines = Lines()
    child = Child(spec("worker-0", "worker", SERVE), lines)
    running = asyncio.create_task(child.run())
    await lines.wait("worker-0", "up")
    assert child.pid is not None
    os.kill(child.pid, signal.SIGSTOP)
    await child.stop(5)
    await running
    assert lines.count("worker-0", "bye") == 1


async def test_a_line_without_an_end_is_not_waited_for(tmp_path: Path) -> None:
    lines = Lines()
    child = Child(spec("worker-0", "worker", "import sys; sys.stdout.write('x' * 200_000 + 'end'); sys.exit(2)"), lines)
    await child.run()
    assert "".join(line for _, line in lines.all) == "x" * 200_000 + "end"


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells children of their parent's death on Linux only")
async def test_children_of_a_killed_supervisor_end(tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    code = f"""
import asyncio, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from services.cli.child import Child, ChildSpec
import os
async def main():
    child = Child(ChildSpec("a", "agent", (sys.executable, "-c", {SERVE!r}), dict(os.environ)), lambda *_: None)
    task = asyncio.create_task(child.run())
    while child.pid is None: await asyncio.sleep(0.01)
    open({str(pids)!r} + ".new", "w").write(str(child.pid))
    os.rename({str(pids)!r} + ".new", {str(pids)!r})
    await task
asyncio.run(main())
"""
    supervisor = subprocess.Popen([sys.executable, "-c", code])

    async def there() -> bool:
        return pids.exists()

    await eventually(there, "the child runs")
    pid = int(pids.read_text())
    supervisor.kill()
    supervisor.wait()

    async def gone() -> bool:
        return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE

    await eventually(gone, "the child ends with its supervisor")
