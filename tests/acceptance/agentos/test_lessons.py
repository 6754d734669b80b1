"""The lessons in examples/agentos as their README tells: one `turnlog up`, every script, and again on the same data."""

import asyncio
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.embedded.place import free_port
from tests.support.commands import environment, up
from tests.support.places import server_directory
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).parents[3]
LESSONS = ROOT / "examples" / "agentos"


@pytest.fixture
def home() -> Iterator[Path]:
    with server_directory() as directory:
        yield directory


def told() -> tuple[list[str], list[Path]]:
    """The words behind `turnlog up`, and the scripts."""
    start, scripts = re.findall(r"```bash\n(.*?)```", (LESSONS / "README.md").read_text(), re.DOTALL)
    variable, _, command, *words = shlex.split(start.replace("\\\n", " "))
    assert (variable, command) == ("PYTHONPATH=examples/agentos", "up")
    return words, [ROOT / line.split()[1] for line in scripts.splitlines()]


async def learn(script: Path, url: str) -> str:
    """One script to its end; what it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(script)),
        env=environment(TURNLOG_URL=url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(2 * PATIENCE):
        out, err = await process.communicate()
    assert process.returncode == 0, f"{script.name}: {out.decode()}\n{err.decode()}"
    return out.decode()


async def test_every_lesson_as_it_is_told_and_again_on_the_same_data(home: Path) -> None:
    words, scripts = told()
    assert {script.name for script in scripts} == {
        path.name for path in LESSONS.glob("*.py") if 'if __name__ == "__main__":' in path.read_text()
    }
    port = free_port()
    async with up(home / "up", port, *words, cwd=ROOT, PYTHONPATH="examples/agentos") as running:
        await running.ready()
        first = await asyncio.gather(*(learn(script, running.url) for script in scripts))
        again = await asyncio.gather(*(learn(script, running.url) for script in scripts))
        assert all(first)
        # A run's id is all that may differ: the model says the same, and what was before is not in the way.
        assert [len(printed.splitlines()) for printed in again] == [len(printed.splitlines()) for printed in first]
