"""People who keep chatting while everything around them fails, and what watches over them.

`Crowd` submits, answers, resumes and watches over whichever gateway is there, as patient clients do; `Watch` looks into
the database for sessions that are stuck.
"""

import asyncio
import itertools
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from infra.pipeline.faults import FAULTS
from tests.support.client import Client
from tests.support.cluster import Cluster
from tests.support.sse import Stream
from tests.support.waiting import Stopwatch

ENDED = {"completed", "failed", "interrupted", "cancelled"}
_PAUSE = 0.15
_LOOKS_A_SECOND = 100
"""Of all people together: a crowd that does nothing but look leaves no time to those who work."""


@dataclass
class Viewer:
    """One viewer of one session, who reconnects anywhere after the last id."""

    cluster: Cluster
    session: str
    ids: list[int] = field(default_factory=list)
    ends: set[str] = field(default_factory=set)
    connections: int = 0

    async def watch(self) -> None:
        while True:
            gateway = random.choice(self.cluster.gateways)
            async with httpx2.AsyncClient(base_url=gateway.url, timeout=httpx2.Timeout(5.0, read=20.0)) as http:
                headers = {"Accept": "text/event-stream", "Last-Event-ID": str(self.ids[-1] if self.ids else 0)}
                stream = Stream(http, f"/v1/sessions/{self.session}/events", headers)
                self.connections += 1
                seen = 0
                try:
                    while not stream.ended or seen < len(stream.frames):
                        await _quietly(stream.until(_more(stream, seen), 60.0))
                        for frame in stream.frames[seen:]:
                            if frame.committed and frame.id is not None:
                                self.ids.append(int(frame.id))
                        seen = len(stream.frames)
                finally:
                    await stream.close()
            await asyncio.sleep(_PAUSE)


def _more(stream: Stream, seen: int) -> Callable[[], bool]:
    return lambda: stream.ended or len(stream.frames) > seen


async def _quietly(work: Any) -> None:
    try:
        await work
    except AssertionError:
        return


class Crowd:
    """Drives sessions to their end. `accepted`: turn ids by session, in the order of their acceptance."""

    def __init__(self, cluster: Cluster, counts: Path, *, sessions: int, turns: int) -> None:
        self.cluster = cluster
        self.counts = counts
        self.accepted: dict[str, list[str]] = {}
        self.viewers: list[Viewer] = []
        self._watching: list[asyncio.Task[None]] = []
        self.answers = 0
        self.resumes = 0
        self.replayed = 0
        self.begun = asyncio.Semaphore(0)
        """Released by each session that has its first turn."""
        self.calm = asyncio.Event()
        """Until it is set people go on beyond their number of turns."""
        self._sessions = sessions
        self._pause = max(_PAUSE, sessions / _LOOKS_A_SECOND)
        self._turns = turns
        self._clients = [Client(gateway.url) for gateway in cluster.gateways]

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        """Until every accepted turn has ended. Viewers go on until they are told to `leave`."""
        work = [tasks.create_task(self._session(number, tasks)) for number in range(self._sessions)]
        await asyncio.gather(*work)

    async def under_way(self) -> None:
        """Returns when every session has a turn."""
        for _ in range(self._sessions):
            await self.begun.acquire()

    def leave(self) -> None:
        """All viewers hang up."""
        for watching in self._watching:
            watching.cancel()

    async def close(self) -> None:
        for client in self._clients:
            await client.close()

    async def call(self, method: str, path: str, body: Any = None, key: str | None = None) -> Any:
        """A clear answer, from whichever gateway gives one; refusals come as (status, problem)."""
        headers = {} if key is None else {"Idempotency_Key": key}
        while True:
            try:
                answer = await random.choice(self._clients).request(method, path, body, **headers)
            except httpx2.TransportError:
                await asyncio.sleep(_PAUSE)
                continue
            if answer.status_code in (429, 500, 502, 503, 504):
                await asyncio.sleep(_PAUSE)
                continue
            if answer.headers.get("Idempotency-Replayed"):
                self.replayed += 1
            return answer.status_code, answer.json() if answer.content else None

    async def _session(self, number: int, tasks: asyncio.TaskGroup) -> None:
        status, made = await self.call("POST", "/v1/sessions", {"agent_id": "steps", "external_id": f"s{number}"})
        assert status in (200, 201), made
        session = made["session_id"]
        self.accepted[session] = []
        viewer = Viewer(self.cluster, session)
        self.viewers.append(viewer)
        self._watching.append(tasks.create_task(viewer.watch()))
        for turn in itertools.count():
            if turn >= self._turns and self.calm.is_set():
                break
            work = {
                "file": str(self.counts),
                "tools": random.randint(1, 4),
                "pauses": random.choice((0, 0, 0, 0, 1, 2)),
                "seconds": random.choice((0.1, 0.2, 0.5)),
            }
            status, reply = await self.call(
                "POST", f"/v1/sessions/{session}/turns", {"input": json.dumps(work)}, key=f"{number}-{turn}"
            )
            assert status == 202, reply
            self.accepted[session].append(reply["turn_id"])
            if turn == 0:
                self.begun.release()
            await self._look(session)
            while await self._waiting(session) > 1:
                await asyncio.sleep(self._pause)
        while not await self._over(session):
            await self._look(session)
            await asyncio.sleep(self._pause)

    async def _waiting(self, session: str) -> int:
        """How many of the session's turns have not ended; whatever waits for people is seen to."""
        await self._look(session)
        _, page = await self.call("GET", f"/v1/sessions/{session}/turns?limit=5")
        return sum(turn["status"] not in ENDED for turn in page["items"])

    async def _over(self, session: str) -> bool:
        _, page = await self.call("GET", f"/v1/sessions/{session}/turns?limit=200")
        return all(turn["status"] in ENDED for turn in page["items"])

    async def _look(self, session: str) -> None:
        """Answer what is asked, resume what is paused."""
        _, status = await self.call("GET", f"/v1/sessions/{session}/status")
        if status["queue_state"] == "paused":
            code, _ = await self.call("POST", f"/v1/sessions/{session}/resume")
            self.resumes += code == 200
        if status["chat_status"] == "human" and status["active_turn_id"]:
            await self._answer(session, status["active_turn_id"])

    async def _answer(self, session: str, turn: str) -> None:
        _, seen = await self.call("GET", f"/v1/sessions/{session}/turns/{turn}")
        asked = [need["tool_call_id"] for need in seen["requirements"] if "answer" not in need]
        random.shuffle(asked)
        for call in asked:
            body = {"answers": [{"tool_call_id": call, "approved": True}]}
            # Now and then from two tabs at once: equal repeats are fine.
            tabs = random.choice((1, 1, 2))
            path = f"/v1/sessions/{session}/turns/{turn}/continue"
            codes = await asyncio.gather(*(self.call("POST", path, body) for _ in range(tabs)))
            assert all(code in (202, 409, 422) for code, _ in codes), codes
            self.answers += 1


@dataclass
class Watch:
    """Looks for turns that nobody serves. Time in which the database was away, or had only just come back, does not
    count: then nobody can be taken for dead."""

    cluster: Cluster
    patience: float
    stuck: list[str] = field(default_factory=list)
    longest: float = 0.0
    evidence: str = ""
    _since: dict[str, Stopwatch] = field(default_factory=dict)
    SQL = """
        SELECT s.session_id::text || ' ' || t.turn_id::text || ' ' || t.attempt AS orphan
        FROM sessions s JOIN turns t ON t.session_id = s.session_id AND t.turn_id = s.active_turn_id
            AND t.generation = s.turns_generation
        LEFT JOIN claims c ON c.session_id = s.session_id LEFT JOIN workers w ON w.worker_id = c.worker_id
        WHERE t.status = 'running' AND coalesce(w.expires_at < clock_timestamp(), true)
           OR t.status = 'paused' AND t.continued"""

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(2.0):
                    rows = await self.cluster.fetch(self.SQL)
            except FAULTS:
                self._since.clear()
            else:
                self._seen({row["orphan"] for row in rows})
                if self.stuck and not self.evidence:
                    self.evidence = await self._look_closer()
            await asyncio.sleep(0.25)

    async def _look_closer(self) -> str:
        """What the database knows of the first one that is stuck."""
        session = self.stuck[0].split()[0]
        found = {}
        for name, sql in _EVIDENCE.items():
            found[name] = [dict(row) for row in await self.cluster.fetch(sql, session)]
        return repr(found)

    def restart(self) -> None:
        """Everything was disturbed again: count anew."""
        self._since.clear()

    def _seen(self, orphans: set[str]) -> None:
        self._since = {orphan: self._since.get(orphan) or Stopwatch() for orphan in orphans}
        for orphan, alone in self._since.items():
            self.longest = max(self.longest, alone())
            if alone() > self.patience:
                self.stuck.append(orphan)


_EVIDENCE = {
    "turn": """SELECT status, attempt, released, continued, deaths, progress::text, leg_started_at FROM turns
               WHERE session_id = $1::uuid""",
    "claim": """SELECT c.*, w.expires_at, clock_timestamp() FROM claims c LEFT JOIN workers w USING (worker_id)
                WHERE session_id = $1::uuid""",
    "workers": "SELECT *, $1::uuid FROM workers",
    "locks": """SELECT l.pid, l.granted, a.state, a.application_name, a.xact_start, left(a.query, 60), $1::uuid
                FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE locktype = 'advisory'""",
    "events": """SELECT sequence, type, created_at FROM events WHERE session_id = $1::uuid
                 ORDER BY sequence DESC LIMIT 6""",
}


def runs_of(counts: Path) -> dict[str, int]:
    """How often each tool that may run once has run."""
    found: dict[str, int] = {}
    for line in counts.read_text().splitlines() if counts.exists() else []:
        turn, number, kind = line.split()
        if kind == "once":
            found[f"{turn} {number}"] = found.get(f"{turn} {number}", 0) + 1
    return found
