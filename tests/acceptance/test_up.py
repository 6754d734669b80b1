"""`turnlog up` as a newcomer runs it: from nothing to a served turn, through crashes, to an orderly end."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from infra.embedded.place import free_port
from tests.support.client import Client
from tests.support.commands import TURNLOG, Up, environment, lines_of, turnlog, up
from tests.support.places import server_directory
from tests.support.sse import assert_gapless
from tests.support.waiting import PATIENCE, eventually

MINE = """
import asyncio

async def echo(turn):
    for word in turn.input.split():
        yield word + " "

async def endless(turn):
    while True:
        yield "on and "
        await asyncio.sleep(0.05)
"""


@pytest.fixture
def home() -> Iterator[Path]:
    with server_directory() as directory:
        yield directory


async def shell(command: str) -> str:
    """One shell command to its end."""
    process = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0, command
    return out.decode()


async def test_from_nothing_through_crashes_to_an_orderly_end(home: Path) -> None:
    port = free_port()
    async with up(home, port, "--gateways", "2") as first:
        await first.ready()
        await submit_and_watch_as_invited(first)
        await a_killed_child_comes_back(first)
        await first.kill_everything()
    async with up(home, port, "--gateways", "2") as second:
        await second.ready()
        client = Client(second.url)
        events = await client.events("hello")
        assert_gapless([event["sequence"] for event in events])
        assert [e["type"] for e in events if e["type"].startswith("turn.")][-1] == "turn.completed"
        await client.run("hello", "Again, please")
        await client.close()
        processes = second.children("")
        assert len(processes) >= 7
        assert await second.interrupt() == 0
        assert not [process for process in processes if process.is_running()]
        assert second.log.rstrip().endswith("stopped")


async def submit_and_watch_as_invited(running: Up) -> None:
    """The two printed lines, pasted."""
    watching = asyncio.create_task(lines_of(running.line("watch"), lambda seen: "event: turn.completed" in seen))
    reply = json.loads(await shell(running.line("submit") + " --silent"))
    assert reply["status"] in ("queued", "running")
    seen = await watching
    assert "event: item.delta" in seen
    assert "event: tool_result.snapshot" in seen


async def a_killed_child_comes_back(running: Up) -> None:
    for role in ("gateway", "worker", "agent"):
        victim = running.children(f"turnlog {role}")[0]
        os.kill(victim.pid, signal.SIGKILL)

    async def served() -> bool:
        try:
            async with httpx2.AsyncClient() as http:
                return (await http.get(running.url + "/readyz")).status_code == 200
        except httpx2.TransportError:
            return False

    async def all_there() -> bool:
        return all(running.children(f"turnlog {role}") for role in ("gateway", "worker", "agent"))

    await eventually(all_there, "the killed ones run again")
    await eventually(served, "the gateway serves again")
    client = Client(running.url)
    await client.run("hello", "Are you there?")
    await client.close()


async def test_ones_own_agent_chat_and_tail(home: Path) -> None:
    """An agent from the working directory; a piped chat; a tail that ends with the session."""
    (home / "mine.py").write_text(MINE)
    port = free_port()
    async with up(home / "up", port, "--agent", "mine:echo", "--agent", "mine:endless", cwd=home) as running:
        await running.ready()
        code, out, err = await turnlog("chat", "--url", running.url, stdin="one two\nthree\n")
        assert (code, out) == (0, "one two \nthree \n"), err
        code, out, _ = await turnlog("status", "--json", "--url", running.url)
        assert code == 0
        assert [agent["agent_id"] for agent in json.loads(out)["agents"]] == ["echo", "endless"]
        await ctrl_c_in_a_chat_interrupts_the_turn(running)
        client = Client(running.url)
        await client.run("hello", "x")
        tailing = asyncio.create_task(turnlog("tail", "hello", "--json", "--url", running.url))
        await client.json("DELETE", "/v1/sessions/hello", status=204)
        code, out, err = await tailing
        assert code == 0, err
        assert_gapless([json.loads(line)["sequence"] for line in out.splitlines()])
        assert json.loads(out.splitlines()[-1])["type"] == "session.closed"
        await client.close()
        assert await running.interrupt() == 0


async def ctrl_c_in_a_chat_interrupts_the_turn(running: Up) -> None:
    process = await asyncio.create_subprocess_exec(
        str(TURNLOG),
        *("chat", "--agent", "endless", "--url", running.url),
        env=environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        process.stdin.write(b"go on\n")
        await process.stdout.readuntil(b"on and on and ")
        process.send_signal(signal.SIGINT)
        await process.stdout.readuntil(b"[interrupted by ")
        process.stdin.close()
        assert await process.wait() == 0


async def test_a_taken_port_is_one_line_and_exit_code_2(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        code, out, err = await turnlog("up", "--data", str(home / "data"), "--port", str(port))
    assert (code, out) == (2, "")
    assert err.startswith(f"turnlog: cannot listen on 127.0.0.1:{port}")
    assert "--port" in err
    assert err.count("\n") == 1
    assert not (home / "data").exists()


async def test_an_agent_that_is_not_there_ends_it_with_exit_code_2(home: Path) -> None:
    code, _, err = await turnlog(
        "up", "--data", str(home / "data"), "--port", str(free_port()), "--agent", "nowhere:nothing"
    )
    assert code == 2
    assert "no module `nowhere`" in err
    assert "Traceback" not in err
