"""The README's tour: its commands are taken from it and run, at the ports of a test."""

import asyncio
import json
import os
import re
import shlex
import signal
from pathlib import Path

from tests.support.commands import Up, lines_of, turnlog
from tests.support.readme import at_ports, blocks
from tests.support.sse import SseParser, assert_gapless
from tests.support.waiting import eventually


async def shell(command: str) -> str:
    """One shell command to its end."""
    process = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0, command
    return out.decode()


def words_of_two_gateways() -> list[str]:
    """The options in `make up ARGS="…"`."""
    (line,) = blocks("bash", "1. Two gateways")
    found = re.fullmatch(r'make up ARGS="(.*)"', line)
    assert found is not None, line
    return shlex.split(found[1])


async def follow(running: Up) -> None:
    """Submit at one gateway and watch at the other, kill one in mid-turn, go on after an id."""
    create, watch, submit = blocks("bash", "2. Submit at one")
    again, kill, resume = blocks("bash", "3. Kill a gateway")
    made = json.loads(await shell(at_ports(create, running.port)))
    assert made["external_id"] == "tour"
    watching = asyncio.create_task(
        lines_of(at_ports(watch, running.port), lambda seen: "event: turn.completed" in seen)
    )
    first = json.loads(await shell(at_ports(submit, running.port)))
    assert json.loads(await shell(at_ports(submit, running.port))) == first
    seen = await watching
    assert_gapless(ids(seen))
    assert "event: item.delta" in seen

    second = json.loads(await shell(at_ports(again, running.port)))
    kill_as_told(kill, running)

    async def complete() -> str | None:
        """Once the gateway is back, the stream from 5 on has the end of the second turn."""
        found = await lines_of(
            at_ports(resume, running.port),
            lambda text: text.count("event: turn.completed") == 2,
            timeout=2,
            strict=False,
        )
        return found if found.count("event: turn.completed") == 2 else None

    seen = await eventually(complete, "the second turn is complete")
    assert_gapless(ids(seen), first=6)
    assert second["turn_id"] in seen


def ids(stream: str) -> list[int]:
    return [int(event.id) for event in SseParser().feed(stream.encode()) if event.committed and event.id is not None]


def kill_as_told(line: str, running: Up) -> None:
    """`pkill -KILL -o -x NAME`, but among the processes of this very test only."""
    name = shlex.split(line)[-1]
    assert shlex.split(line) == ["pkill", "-KILL", "-o", "-x", name]
    named = [child for child in running.children("") if Path(f"/proc/{child.pid}/comm").read_text().strip() == name]
    assert len(named) == 2, f"two processes are named {name!r}"
    os.kill(named[0].pid, signal.SIGKILL)


def ones_own_agent(home: Path) -> list[str]:
    """Save the agent as told; the words that serve it, to be run in that directory with PYTHONPATH=."""
    (code,) = blocks("python", "4. Your own agent")
    (start,) = blocks("bash", "4. Your own agent")
    (home / code.splitlines()[0].removeprefix("# ")).write_text(code)
    variable, program, command, *words = shlex.split(start)
    assert (variable, program, command) == ("PYTHONPATH=.", ".venv/bin/turnlog", "up")
    return words


async def chat(running: Up) -> None:
    """Talk to one's own agent in the terminal."""
    (line, _) = blocks("bash", "From the terminal")
    assert line == ".venv/bin/turnlog chat"
    code, out, err = await turnlog("chat", "--url", running.url, stdin="hear me\nand me\n")
    assert (code, out) == (0, "HEAR ME \nAND ME \n"), err
