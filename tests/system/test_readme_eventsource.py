"""The README's EventSource example, run by Node's own EventSource against a running installation."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.embedded.place import free_port
from tests.support.client import Client
from tests.support.commands import up
from tests.support.places import server_directory
from tests.support.readme import at_ports, blocks

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]


@pytest.fixture
def home() -> Iterator[Path]:
    with server_directory() as directory:
        yield directory


async def test_it_prints_the_items_of_a_turn(home: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    (code,) = blocks("js", "5. Your own page")
    port = free_port()
    script = home / "watch.mjs"
    script.write_text(at_ports(code, port))
    async with up(home, port) as running:
        await running.ready()
        client = Client(running.url)
        await client.json("POST", "/v1/sessions", {"agent_id": "demo", "external_id": "tour"}, status=201)
        await client.close()
        process = await asyncio.create_subprocess_exec(
            node,
            "--experimental-eventsource",
            str(script),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(30):
            out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        lines = out.decode().splitlines()
        assert any("text:" in line and "42" in line for line in lines), lines
        assert lines[-1].endswith("completed")
        assert json.loads(str(lines[-1][1:].split()[0])) > 1
