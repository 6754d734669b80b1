"""The WHATWG client of `judge.mjs` as a test uses it, and a wire that is cut where the test says."""

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tests.support.waiting import PATIENCE
from tests.system.tools import HERE

REDUCER = HERE.parents[1] / "services" / "gateway" / "page" / "reducer.js"
_EVENT = re.compile(rb"id: \d+\nevent: (?!stream\.)[^\n]*\ndata: [^\n]*\n\n")


@dataclass(frozen=True)
class Verdict:
    """What one EventSource was told until its turn completed. `at`: when, in milliseconds since 1970."""

    heard: list[dict[str, Any]]
    opens: int
    refusals: list[int]
    folded: dict[str, Any]

    @property
    def committed(self) -> list[dict[str, Any]]:
        """Events of the log, in the order they came."""
        return [one["message"] for one in self.heard if "sequence" in one["message"]]

    @property
    def ids(self) -> list[int]:
        """Their `lastEventId`, which must be their sequence."""
        known = [one for one in self.heard if "sequence" in one["message"]]
        assert [one["id"] for one in known] == [str(one["message"]["sequence"]) for one in known]
        return [int(one["id"]) for one in known]


class Judge:
    """Some EventSources in one Node."""

    def __init__(self, process: asyncio.subprocess.Process, sources: int) -> None:
        self._process = process
        self._opens = [0] * sources

    async def opened(self, times: int = 1) -> None:
        """Wait until each has been opened so often."""
        async with asyncio.timeout(PATIENCE):
            while min(self._opens) < times:
                line = await self._line()
                self._opens[line["open"]] = line["opens"]

    async def verdicts(self, timeout: float = PATIENCE) -> list[Verdict]:
        """Wait until each has seen a turn complete."""
        async with asyncio.timeout(timeout):
            while "done" not in (line := await self._line()):
                pass
        return [Verdict(**found) for found in line["done"]]

    async def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            assert self._process.stderr is not None
            raise AssertionError((await self._process.stderr.read()).decode())
        found: dict[str, Any] = json.loads(line)
        return found


@asynccontextmanager
async def judging(urls: Sequence[str]) -> AsyncIterator[Judge]:
    """One EventSource a URL."""
    process = await asyncio.create_subprocess_exec(
        shutil.which("node") or "node",
        str(HERE / "judge.mjs"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=2**26,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps({"urls": list(urls), "reducer": str(REDUCER)}).encode())
    process.stdin.close()
    try:
        yield Judge(process, len(urls))
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class CutWire:
    """Connection i goes to `ports[i % len]`. The first one to carry so many events is cut right behind number `after`
    (0: never); the next stream is left alone."""

    def __init__(self, ports: Sequence[int], after: int) -> None:
        self._ports = list(ports)
        self._after = after
        self.connections = 0
        self.cut = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = self.connections
        self.connections += 1
        back, forth = await asyncio.open_connection("127.0.0.1", self._ports[number % len(self._ports)])
        asking = asyncio.create_task(self._ask(reader, forth))
        whole, sent = b"", 0
        try:
            while data := await back.read(65536):
                whole += data
                ends = [] if self.cut else [found.end() for found in _EVENT.finditer(whole)]
                cutting = len(ends) >= self._after > 0
                end = ends[self._after - 1] if cutting else len(whole)
                writer.write(whole[sent:end])
                await writer.drain()
                sent = end
                if cutting:
                    self.cut = True
                    return
        except ConnectionError:
            return
        finally:
            asking.cancel()
            forth.close()
            writer.close()

    async def _ask(self, reader: asyncio.StreamReader, forth: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                forth.write(data)
                await forth.drain()
        forth.close()


@asynccontextmanager
async def cut_wire(ports: Sequence[int], after: int) -> AsyncIterator[str]:
    """The URL in front of these gateways."""
    wire = CutWire(ports, after)
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
