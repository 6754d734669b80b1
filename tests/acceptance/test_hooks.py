"""Hooks on real processes: what runs in the background runs, whoever is killed and whatever the broker loses."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.embedded.place import free_port
from tests.support.client import Client, finished
from tests.support.cluster import Cluster
from tests.support.hook_agents import SECRET
from tests.support.receiver import receiving
from tests.support.servers import LoopThread
from tests.support.standing import StandingClusters
from tests.support.waiting import eventually
from turnlog import verify_webhook

AGENTS = [f"{name}=tests.support.hook_agents:{name}" for name in ("watched", "held", "unlucky")]
RECEIVER = free_port()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hooks")


@pytest.fixture(scope="module")
def loop_of_servers() -> Iterator[LoopThread]:
    """Servers of a module live on a loop of their own: who stops one does it there."""
    thread = LoopThread()
    try:
        yield thread
    finally:
        thread.close()


@pytest.fixture(scope="module")
def standing(loop_of_servers: LoopThread, standing_clusters: StandingClusters, directory: Path) -> Iterator[Cluster]:
    settings = {
        "TEST_HOOK_DIRECTORY": str(directory),
        "TEST_HOOK_RECEIVER": f"http://127.0.0.1:{RECEIVER}/hooks",
        "TURNLOG_WORKER_HOOK_POLL_SECONDS": "0.3",
        "TURNLOG_WORKER_HOOK_RETRY_SECONDS": "0.05",
        "TURNLOG_WORKER_HOOK_ATTEMPTS": "3",
    }
    with standing_clusters.start_on(
        loop_of_servers, workers=2, projectors=1, serve=AGENTS, own_nats=1, settings=settings
    ) as running:
        yield running


@pytest.fixture
async def cluster(standing: Cluster, directory: Path) -> AsyncIterator[Cluster]:
    yield standing
    await standing.mend()
    for file in directory.iterdir():
        file.unlink()


async def ended(client: Client, session: str, count: int) -> list[dict[str, Any]]:
    """The session's hooks, oldest first, once so many of them have ended."""

    async def all_ended() -> list[dict[str, Any]] | None:
        found: list[dict[str, Any]] = (await client.json("GET", f"/v1/sessions/{session}/hooks"))["items"]
        return found if sum(1 for one in found if one["finished_at"]) == count == len(found) else None

    return (await eventually(all_ended, f"{count} hooks have ended"))[::-1]


def lines(directory: Path, name: str) -> list[list[str]]:
    file = directory / name
    return [line.split(" ", 3) for line in file.read_text().splitlines()] if file.exists() else []


async def test_a_turn_with_hooks_from_the_guardrail_to_the_webhook(cluster: Cluster, directory: Path) -> None:
    client = cluster.client()
    session = await client.create("watched")
    async with receiving(RECEIVER) as receiver:
        receiver.statuses = [500]
        turn = (await client.submit(session, "hello there"))["turn_id"]
        done = await finished(client, session, turn)
        assert done["status"] == "completed"
        hooks = await ended(client, session, 3)
    by_name = {hook["hook"]: hook for hook in hooks}
    assert {name: hook["status"] for name, hook in by_name.items()} == dict.fromkeys(by_name, "completed")
    assert by_name["judge"]["kind"] == "evaluation"
    assert by_name["judge"]["result"] == {"score": len("HELLO THERE "), "job": by_name["judge"]["job_id"]}
    (only,) = (await client.json("GET", f"/v1/sessions/{session}/hooks?kind=evaluation"))["items"]
    assert only == by_name["judge"]
    ((job_id, attempt, status, said),) = lines(directory, "audit")
    assert (job_id, attempt, status) == (by_name["audit"]["job_id"], "1", "completed")
    assert said == "HELLO THERE -> HELLO THERE "
    first, second = receiver.requests
    assert first.headers["turnlog-delivery"] == second.headers["turnlog-delivery"] == by_name["webhook"]["job_id"]
    timestamp, signature = second.headers["turnlog-timestamp"], second.headers["turnlog-signature"]
    assert verify_webhook(SECRET, second.body, timestamp, signature)
    assert not verify_webhook(SECRET + "!", second.body, timestamp, signature)
    posted = json.loads(second.body)
    assert (posted["type"], posted["turn_id"], posted["output"]) == ("turn.completed", turn, "HELLO THERE ")
    types = [event["type"] for event in await client.events(session)]
    end = types.index("turn.completed")
    assert types[end : end + 4] == ["turn.completed", *["hook.scheduled"] * 3], "in the transaction of the end"
    assert types.index("turn.input_rewritten") < types.index("item.completed")
    refused = await finished(client, session, (await client.submit(session, "a secret"))["turn_id"])
    assert refused["error"]["code"] == "input_refused"
    assert SECRET not in cluster.logs()
    assert await cluster.check() == []


async def test_the_worker_is_killed_after_the_commit_that_schedules_a_hook(cluster: Cluster, directory: Path) -> None:
    """The hook's job is in the log and was never told to the work queue."""
    client = cluster.client()
    session = await client.create("held")
    (directory / "go").touch()
    (directory / "die").touch()
    turn = (await client.submit(session, "x"))["turn_id"]
    await finished(client, session, turn)

    async def one_died() -> bool:
        return sum(worker.alive for worker in cluster.workers) == 1

    await eventually(one_died, "the worker that ran the turn is gone")
    (hook,) = await ended(client, session, 1)
    assert hook["status"] == "completed"
    assert lines(directory, "ended")[0][0] == hook["job_id"]


async def test_the_worker_is_killed_while_a_hook_runs_and_the_broker_forgets_it(
    cluster: Cluster, directory: Path, loop_of_servers: LoopThread
) -> None:
    """Nothing but the log knows of the job; its next try has the same key."""
    client = cluster.client()
    session = await client.create("held")
    turn = (await client.submit(session, "x"))["turn_id"]
    assert (await finished(client, session, turn))["status"] == "completed", "nobody waits for the hook"

    async def began(count: int) -> bool:
        return len(lines(directory, "began")) >= count

    await eventually(lambda: began(1), "the hook has begun")
    await asyncio.to_thread(loop_of_servers.run, cluster.wipe_nats())
    for worker in cluster.workers:
        await worker.kill()
    for worker in cluster.workers:
        await worker.start()
    await asyncio.to_thread(loop_of_servers.run, cluster.nats.start())
    await eventually(lambda: began(2), "another worker tries it")
    first, second = lines(directory, "began")
    assert (first[0], first[1], second[1]) == (second[0], "1", "2")
    assert lines(directory, "ended") == []
    (directory / "go").touch()
    (hook,) = await ended(client, session, 1)
    assert hook["status"] == "completed"


async def test_a_hook_that_always_fails_has_failed_after_its_last_try(cluster: Cluster, directory: Path) -> None:
    client = cluster.client()
    session = await client.create("unlucky")
    turn = (await client.submit(session, "x"))["turn_id"]
    await finished(client, session, turn)
    (hook,) = await ended(client, session, 1)
    assert (hook["status"], hook["attempts"]) == ("failed", 3)
    assert "as the test wanted" not in hook["error"], "texts of exceptions may quote secrets"
    tries = lines(directory, "tries")
    assert [one[1] for one in tries] == ["1", "2", "3"]
    assert {one[0] for one in tries} == {hook["job_id"]}
    assert await cluster.fetch("SELECT * FROM hook_jobs") == []
    assert await cluster.check() == []
