"""Streams of runs cut anywhere and resumed anywhere: indices without repeat, without gap but where an attempt died."""

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from services.gateway.dialects.agentos.fold import ATTEMPT_BASE
from tests.acceptance.agentos.caller import Caller, events, indices, names, said
from tests.support.cluster import Cluster


async def test_cut_after_every_event_and_resumed_at_the_other_gateway(a: Caller, b: Caller) -> None:
    run = await a.begin("slow", "14 0.08", "cut")
    whole = asyncio.create_task(b.resume("slow", run, "cut", None))

    async def cut(after: int) -> list[dict[str, Any]]:
        """So many events from one gateway, the rest from the other, both while it runs."""
        first = await a.resume("slow", run, "cut", None, after + 2)
        rest = await b.resume("slow", run, "cut", first[-1]["event_index"] if first else None)
        return [*first, *rest]

    tries = await asyncio.gather(*(cut(k) for k in range(16)))
    full = await whole
    assert indices(full) == list(range(len(full)))
    assert names(full) == ["RunStarted", "RunContent", "RunContentCompleted", "RunCompleted"]
    assert said(full) == full[-1]["content"] == "".join(f"{n} " for n in range(14))
    for tried in tries:
        assert tried == full
    assert await a.resume("slow", run, "cut", None) == full, "replayed, pieces of the text included"


async def test_cut_after_every_event_across_a_pause_a_restart_of_everything_included(
    cluster: Cluster, a: Caller, b: Caller, tmp_path: Path
) -> None:
    first = events(await a.stream("/agents/asker/runs", message=tmp_path, session_id="pause"))
    assert names(first) == ["RunStarted", "RunContent", "RunContentCompleted", "RunPaused"]
    run = first[0]["run_id"]
    for process in cluster.processes:
        await process.kill()
    await cluster.mend()
    tools = [{**tool, "confirmed": True} for tool in first[-1]["tools"]]
    (tmp_path / "go").touch()
    async with Caller(cluster.gateways[1].url + "/agentos") as fresh:
        path = f"/agents/asker/runs/{run}/continue"
        second = events(await fresh.stream(path, session_id="pause", tools=json.dumps(tools)))
        whole = first + second
        assert names(second)[0] == "RunContinued"
        assert second[-1]["event"] == "RunCompleted"
        assert indices(whole) == list(range(len(whole)))
        assert said(whole) == whole[-1]["content"] == "May I? Allowed: 2. Done."
        for after in range(-1, len(whole)):
            assert await fresh.resume("asker", run, "pause", after) == whole[after + 1 :]


async def test_a_killed_worker_leaves_one_gap_and_what_still_stands(
    cluster: Cluster, a: Caller, b: Caller, tmp_path: Path
) -> None:
    run = await a.begin("mortal", str(tmp_path), "death")
    live = asyncio.create_task(a.resume("mortal", run, "death", None))
    cut = await b.resume("mortal", run, "death", None, 9)
    (tmp_path / "die").touch()
    whole = await live
    jumps = [(x, y) for x, y in pairwise(indices(whole)) if y != x + 1]
    assert [y for _, y in jumps] == [ATTEMPT_BASE]
    ended = whole[-1]
    assert (ended["event"], ended["content"]) == ("RunCompleted", said(whole))
    assert said(whole).endswith("2.0 2.1 2.2 2.3 Alive.")
    assert "1.0" not in said(whole)
    rest = await b.resume("mortal", run, "death", cut[-1]["event_index"])
    assert indices(cut + rest) == sorted(set(indices(cut + rest)))
    replayed = await a.resume("mortal", run, "death", None)
    assert said(cut + rest) == said(replayed) == said(whole)
    assert [e for e in replayed if e["event_index"] >= ATTEMPT_BASE] == [
        e for e in whole if e["event_index"] >= ATTEMPT_BASE
    ]
    assert len(await a.resume("mortal", run, "death", whole[-3]["event_index"])) == 2


async def test_an_inline_stream_whose_client_is_gone_does_not_cancel(a: Caller, b: Caller, tmp_path: Path) -> None:
    frames = await a.stream("/agents/hold/runs", 2, message=tmp_path / "go", session_id="gone")
    run = json.loads(frames[0].data)["run_id"]
    (tmp_path / "go").touch()
    found = await b.until("hold", run, "gone", "COMPLETED", "CANCELLED", "ERROR")
    assert (found["status"], found["content"]) == ("COMPLETED", "holding done")


async def test_a_browsers_event_source_resumes_by_itself_and_is_told_to_stop(a: Caller, b: Caller) -> None:
    run = (await a.run("counter", "x", "browser"))["run_id"]
    path = f"/agents/counter/runs/{run}/resume"
    whole = await a.resume("counter", run, "browser", None)
    answer = await b.http.get(path, params={"session_id": "browser"}, headers={"Last-Event-ID": "2"})
    assert f"id: {whole[-1]['event_index']}\n" in answer.text
    assert "id: 2\n" not in answer.text
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    last = str(whole[-1]["event_index"])
    assert (await b.http.get(path, headers={"Last-Event-ID": last})).status_code == 204


async def test_streams_say_where_they_stand(a: Caller, b: Caller, tmp_path: Path) -> None:
    run = await a.begin("hold", str(tmp_path / "go"), "stand")
    await a.until("hold", run, "stand", "RUNNING")
    running = await b.stream(f"/agents/hold/runs/{run}/resume", 2, session_id="stand")
    assert running[0].event == "catch_up"
    caught = json.loads(running[0].data)
    assert caught["status"] == "running"
    assert caught["missed_events"] == caught["current_event_count"]
    (tmp_path / "go").touch()
    await a.until("hold", run, "stand", "COMPLETED")
    ended = await b.stream(f"/agents/hold/runs/{run}/resume", session_id="stand", last_event_index=1)
    meta = json.loads(ended[0].data)
    assert meta["event"] == "replay"
    assert meta["total_events"] == len(ended) - 1 == meta["total_buffered"] - 2
    beyond = await b.stream(f"/agents/hold/runs/{run}/resume", session_id="stand", last_event_index=99)
    assert [frame.event for frame in beyond] == ["replay"]
    nowhere = await b.stream("/agents/hold/runs/nope/resume", session_id="stand")
    assert json.loads(nowhere[0].data) == {"event": "error", "error": "Run nope not found in buffer or database"}
