"""`turnlog up` as a newcomer runs it: from nothing to a served turn, through crashes, to an orderly end.

One installation, one story, since each start costs a dozen seconds of a CPU: the README's tour and the invitation at
the first start, one's own agent and the terminal at the second. Mistakes need no installation.
"""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.embedded.place import free_port
from tests.support import tour
from tests.support.client import Client
from tests.support.commands import TURNLOG, Up, environment, lines_of, turnlog, up
from tests.support.places import server_directory
from tests.support.sse import assert_gapless
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.timeout(480)

MINE = """
import asyncio

async def whole(turn):
    while True:
        yield "on and "
        await asyncio.sleep(0.05)
"""


@pytest.fixture
def home() -> Iterator[Path]:
    with server_directory() as directory:
        yield directory


async def test_from_nothing_through_crashes_to_an_orderly_end(home: Path) -> None:
    port, place = free_port(), home / "up"
    async with up(place, port, *tour.words_of_two_gateways()) as first:
        await first.ready()
        await submit_and_watch_as_invited(first)
        await tour.follow(first)
        await killed_children_come_back(first)
        await first.kill_everything()
    (home / "mine.py").write_text(MINE)
    words = [*tour.ones_own_agent(home), "--agent", "mine:whole"]
    async with up(place, port, *words, cwd=home, PYTHONPATH=".") as second:
        await second.ready()
        client = Client(second.url)
        for session in ("hello", "tour"):
            events = await client.events(session)
            assert_gapless([event["sequence"] for event in events])
            assert [e["type"] for e in events if e["type"].startswith("turn.")][-1] == "turn.completed"
        await the_terminal_shows_what_is_served(second)
        await tour.chat(second)
        await ctrl_c_in_a_chat_interrupts_the_turn(second)
        await a_tail_ends_with_its_session(second, client)
        await client.close()
        processes = second.children("")
        assert len(processes) >= 6
        assert await second.interrupt() == 0
        assert not [process for process in processes if process.is_running()]
        assert second.log.rstrip().endswith("stopped")


@pytest.mark.soak
async def test_what_only_a_worker_sees_ends_it_in_one_line(home: Path) -> None:
    """The module is there, the agent is not."""
    (home / "mine.py").write_text(MINE)
    words = ("up", "--data", str(home / "data"), "--port", str(free_port()), "--agent", "mine:nothing")
    code, _, err = await turnlog(*words, timeout=2 * PATIENCE, cwd=home, PYTHONPATH=".")
    assert code == 2
    assert "has no `nothing`: check the name after the colon" in err
    assert "Traceback" not in "".join(line for line in err.splitlines() if line.startswith("worker-"))


async def test_an_agent_that_is_nowhere_is_told_before_anything_starts(home: Path) -> None:
    words = ("up", "--data", str(home / "data"), "--port", str(free_port()), "--agent", "mine=nowhere.at:all")
    code, out, err = await turnlog(*words)
    assert (code, out) == (2, "")
    assert err.startswith("turnlog: no module `nowhere` on PYTHONPATH or in ")
    assert err.count("\n") == 1
    assert not (home / "data").exists()


async def submit_and_watch_as_invited(running: Up) -> None:
    """The two printed lines, pasted."""
    watching = asyncio.create_task(lines_of(running.line("watch"), lambda seen: "event: turn.completed" in seen))
    reply = json.loads(await tour.shell(running.line("submit") + " --silent"))
    assert reply["status"] in ("queued", "running")
    seen = await watching
    assert "event: item.delta" in seen
    assert "event: tool_result.snapshot" in seen


async def killed_children_come_back(running: Up) -> None:
    """The worker and the agent service; the tour has killed a gateway."""
    victims = {role: running.children(f"turnlog {role}")[0].pid for role in ("worker", "agent")}
    for pid in victims.values():
        os.kill(pid, signal.SIGKILL)

    async def all_there() -> bool:
        found = {role: [child.pid for child in running.children(f"turnlog {role}")] for role in victims}
        return all(found[role] and victims[role] not in found[role] for role in victims)

    await eventually(all_there, "the killed ones run again")
    client = Client(running.url)

    async def submitted() -> str | None:
        answer = await client.request("POST", "/v1/sessions/hello/turns", {"input": "x"}, Idempotency_Key="there?")
        assert answer.status_code in (202, 503), answer.text
        return str(answer.json()["turn_id"]) if answer.status_code == 202 else None

    turn = await eventually(submitted, "a submit is taken again")
    stream = client.stream("hello", 0)
    await stream.event("turn.completed", turn_id=turn)
    await client.close()


async def the_terminal_shows_what_is_served(running: Up) -> None:
    code, out, _ = await turnlog("status", "--json", "--url", running.url)
    assert code == 0
    agents = [agent["agent_id"] for agent in json.loads(out)["agents"]]
    assert agents == ["shout", "whole", "demo"], "what nobody serves any more comes last"


async def a_tail_ends_with_its_session(running: Up, client: Client) -> None:
    await client.create("shout", external_id="tailed")
    await client.run("tailed", "x")
    tailing = asyncio.create_task(turnlog("tail", "tailed", "--json", "--url", running.url))
    await client.json("DELETE", "/v1/sessions/tailed", status=204)
    code, out, err = await tailing
    assert code == 0, err
    assert_gapless([json.loads(line)["sequence"] for line in out.splitlines()])
    assert json.loads(out.splitlines()[-1])["type"] == "session.closed"


async def ctrl_c_in_a_chat_interrupts_the_turn(running: Up) -> None:
    process = await asyncio.create_subprocess_exec(
        str(TURNLOG),
        *("chat", "--agent", "whole", "--url", running.url),
        env=environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
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
