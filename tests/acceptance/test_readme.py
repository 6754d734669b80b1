"""README.md does what it says: its commands are taken from it and run."""

import asyncio
import json
import os
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.embedded.place import free_port
from tests.support.commands import Up, lines_of, turnlog, up
from tests.support.places import server_directory
from tests.support.readme import README, at_ports, blocks
from tests.support.sse import SseParser, assert_gapless
from tests.support.waiting import eventually


@pytest.fixture
def home() -> Iterator[Path]:
    with server_directory() as directory:
        yield directory


async def shell(command: str) -> str:
    process = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0, command
    return out.decode()


def ids(stream: str) -> list[int]:
    return [int(event.id) for event in SseParser().feed(stream.encode()) if event.committed and event.id is not None]


def words_of_up(line: str) -> list[str]:
    """The options in `make up ARGS="…"`."""
    found = re.fullmatch(r'make up ARGS="(.*)"', line)
    assert found is not None, line
    return shlex.split(found[1])


async def test_the_tour(home: Path) -> None:
    (start,) = blocks("bash", "1. Two gateways")
    create, watch, submit = blocks("bash", "2. Submit at one")
    again, kill, resume = blocks("bash", "3. Kill a gateway")
    port = free_port()
    async with up(home, port, *words_of_up(start)) as running:
        await running.ready()
        made = json.loads(await shell(at_ports(create, port)))
        assert made["external_id"] == "tour"
        watching = asyncio.create_task(lines_of(at_ports(watch, port), lambda seen: "event: turn.completed" in seen))
        first = json.loads(await shell(at_ports(submit, port)))
        assert json.loads(await shell(at_ports(submit, port))) == first
        seen = await watching
        assert_gapless(ids(seen))
        assert "event: item.delta" in seen

        second = json.loads(await shell(at_ports(again, port)))
        kill_as_told(kill, running)

        async def complete() -> str | None:
            """Once the gateway is back, the stream from 5 on has the end of the second turn."""
            command = at_ports(resume, port)
            try:
                found = await lines_of(command, lambda text: text.count("event: turn.completed") == 2, timeout=2)
            except AssertionError:
                return None
            return found if found.count("event: turn.completed") == 2 else None

        seen = await eventually(complete, "the second turn is complete", timeout=40)
        assert_gapless(ids(seen), first=6)
        assert second["turn_id"] in seen
        assert await running.interrupt() == 0


def kill_as_told(line: str, running: Up) -> None:
    """`pkill -KILL -o -x NAME`, but among the processes of this very test only."""
    name = shlex.split(line)[-1]
    assert shlex.split(line) == ["pkill", "-KILL", "-o", "-x", name]
    named = [child for child in running.children("") if Path(f"/proc/{child.pid}/comm").read_text().strip() == name]
    assert len(named) == 2, f"two processes are named {name!r}"
    os.kill(named[0].pid, signal.SIGKILL)


async def test_ones_own_agent(home: Path) -> None:
    (code,) = blocks("python", "4. Your own agent")
    (start,) = blocks("bash", "4. Your own agent")
    (home / code.splitlines()[0].removeprefix("# ")).write_text(code)
    variable, program, command, *words = shlex.split(start)
    assert (variable, program, command) == ("PYTHONPATH=.", ".venv/bin/turnlog", "up")
    port = free_port()
    async with up(home / "up", port, *words, cwd=home, PYTHONPATH=".") as running:
        await running.ready()
        (chat, _) = blocks("bash", "From the terminal")
        assert chat == ".venv/bin/turnlog chat"
        _, out, err = await turnlog("chat", "--url", running.url, stdin="hear me\n")
        assert out == "HEAR ME \n", err
        assert await running.interrupt() == 0


def test_every_link_to_a_file_leads_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target


def test_every_guarantee_names_a_test_that_exists() -> None:
    named = re.findall(r"\[(test_\w+)\]\(([^)]+)\)", README.read_text(encoding="utf-8"))
    assert len(named) > 15
    for test, place in named:
        assert f"def {test}(" in (README.parent / place).read_text(encoding="utf-8"), (test, place)
