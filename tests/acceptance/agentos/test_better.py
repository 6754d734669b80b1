"""What AgentOS gets wrong and this does not, each with a name (docs/agentos.md)."""

import asyncio
import json
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED

from tests.acceptance.agentos.caller import Caller, events, names, said
from tests.support.cluster import Cluster
from tests.support.lifecycle_agents import lines
from tests.unit.worker.test_unpack_archives import zipped


def ask(directory: Path, calls: int = 1) -> str:
    return json.dumps({"directory": str(directory), "calls": calls, "rounds": 1})


async def paused(caller: Caller, agent: str, message: Any, session: str) -> Any:
    run = await caller.run(agent, str(message), session)
    assert run["status"] == "PAUSED", run
    return run


def decided(run: Any, confirmed: bool = True) -> str:
    return json.dumps([{**tool, "confirmed": confirmed} for tool in run["tools"]])


async def test_a_run_survives_kill_9_of_any_process(cluster: Cluster, a: Caller, tmp_path: Path) -> None:
    """Weaknesses 1, 9: all of them, one after the other, in one run."""
    run = await a.begin("hold", str(tmp_path / "go"), "survives")
    await a.until("hold", run, "survives", "RUNNING")
    for process in cluster.processes:
        await process.restart()
    await cluster.ready()
    (tmp_path / "go").touch()
    async with Caller(cluster.gateways[1].url + "/agentos") as fresh:
        found = await fresh.until("hold", run, "survives", "COMPLETED", "ERROR", "CANCELLED")
        assert (found["status"], found["content"]) == ("COMPLETED", "holding done")
        assert said(await fresh.resume("hold", run, "survives", None)) == "holding done"


async def test_cancel_from_any_replica_tells_the_state(a: Caller, b: Caller) -> None:
    """Weaknesses 2, 3, 10; what was said is kept."""
    run = await a.begin("slow", "400 0.05", "cancel")
    await a.until("slow", run, "cancel", "RUNNING")
    answer = await b.post(f"/agents/slow/runs/{run}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (200, "RUNNING")
    found = await a.until("slow", run, "cancel", "CANCELLED")
    assert found["cancellation_stage"] == "EXECUTING"
    replayed = await b.resume("slow", run, "cancel", None)
    assert names(replayed)[-2:] == ["RunCancelled", "RunCompleted"]
    assert replayed[-2]["content"] == replayed[-1]["content"] == found["content"], "what was said is kept"
    assert not any("status" in event for event in replayed)
    again = await a.post(f"/agents/slow/runs/{run}/cancel", session_id="cancel")
    assert again.json()["status"] == "CANCELLED"
    refused = await a.post(f"/agents/slow/runs/{run}/continue", session_id="cancel", stream="false")
    assert refused.status_code == 409
    assert refused.json()["detail"] == f"Cannot continue run {run}: run is cancelled"
    assert (await a.post("/agents/slow/runs/nope/cancel")).status_code == 404


async def test_two_approvals_at_once_run_the_tool_once(a: Caller, b: Caller, tmp_path: Path) -> None:
    """Weakness 4, and 9594: both callers get the same run."""
    run = await paused(a, "approver", ask(tmp_path, 2), "twice")
    path = f"/agents/approver/runs/{run['run_id']}/continue"
    form: dict[str, Any] = {"session_id": "twice", "tools": decided(run), "stream": "false"}
    answers = await asyncio.gather(*(caller.post(path, **form) for caller in (a, b, a, b)))
    assert [answer.status_code for answer in answers] == [200] * 4
    assert {answer.json()["run_id"] for answer in answers} == {run["run_id"]}
    assert {answer.json()["status"] for answer in answers} == {"COMPLETED"}
    assert len(lines(tmp_path, "ran")) == 2, "two calls, each once"
    contrary = await a.post(path, **{**form, "tools": decided(run, confirmed=False)})
    assert contrary.status_code == 409
    late = await b.post(path, **form)
    assert late.json()["run_id"] == run["run_id"], "an equal repeat forks nothing"


async def test_an_approval_after_a_cancel_runs_nothing(a: Caller, b: Caller, tmp_path: Path) -> None:
    """Weakness 5."""
    run = await paused(a, "approver", ask(tmp_path), "late")
    cancelled = await b.post(f"/agents/approver/runs/{run['run_id']}/cancel")
    assert cancelled.json()["status"] == "CANCELLED"
    path = f"/agents/approver/runs/{run['run_id']}/continue"
    refused = await a.post(path, session_id="late", tools=decided(run), stream="false")
    assert refused.status_code == 409
    found = await a.poll("approver", run["run_id"], "late")
    assert (found["status"], found["cancellation_stage"]) == ("CANCELLED", "PAUSED")
    assert lines(tmp_path, "ran") == []


async def test_a_missing_decision_is_no_refusal(a: Caller, tmp_path: Path) -> None:
    """Weakness 8, 9401: 400 names what is open, and nothing is decided."""
    run = await paused(a, "approver", ask(tmp_path, 2), "missing")
    path = f"/agents/approver/runs/{run['run_id']}/continue"
    one = [{**run["tools"][0], "confirmed": True}, run["tools"][1]]
    for tools in ("", "[]", json.dumps(run["tools"]), json.dumps(one)):
        refused = await a.post(path, session_id="missing", tools=tools, stream="false")
        assert refused.status_code == 400
        assert refused.json()["detail"].startswith("Cannot continue run - unresolved tools: [")
    assert (await a.poll("approver", run["run_id"], "missing"))["status"] == "PAUSED"


async def test_a_completed_run_is_never_overwritten(a: Caller, b: Caller) -> None:
    """Weakness 6: continued inline, streamed, in the background, or both, it makes a new run."""
    run = await a.run("counter", "x", "kept")
    path = f"/agents/counter/runs/{run['run_id']}/continue"
    for stream, background in (("false", "false"), ("true", "false"), ("false", "true"), ("true", "true")):
        if stream == "false":
            answer = await b.post(path, session_id="kept", stream=stream, background=background)
            new = answer.json()["run_id"]
            assert answer.json()["forked_from_run_id"] == run["run_id"]
        else:
            streamed = events(await b.stream(path, session_id="kept", background=background))
            assert names(streamed)[0] == "RunContinued"
            new = streamed[0]["run_id"]
        assert new != run["run_id"]
    after = await a.poll("counter", run["run_id"], "kept")
    after.pop("events")
    assert after == run
    regenerated = await a.post(path, session_id="kept", stream="false", regenerate="true")
    assert regenerated.json()["regenerated_from"] == run["run_id"]
    assert (await a.poll("counter", run["run_id"], "kept"))["status"] == "REGENERATED"


async def test_a_callers_run_id_stands_for_one_run(a: Caller, b: Caller) -> None:
    """Weakness 7, issue 9884."""
    first = await a.run("echo", "one", "ids", run_id="mine")
    assert first["run_id"] == "mine"
    for session in ("ids", "other-ids"):
        answer = await b.post("/agents/echo/runs", message="two", session_id=session, run_id="mine", stream="false")
        assert (answer.status_code, answer.json()) == (409, {"detail": "Run mine already exists"})
    assert (await b.poll("echo", "mine", "ids"))["content"] == "one "


async def test_runs_that_are_not_over_are_not_continued_and_paths_of_others_lead_nowhere(
    a: Caller, b: Caller, tmp_path: Path
) -> None:
    """Weakness 14, continue of a RUNNING run."""
    run = await a.begin("hold", str(tmp_path / "go"), "running")
    await a.until("hold", run, "running", "RUNNING")
    refused = await b.post(f"/agents/hold/runs/{run}/continue", session_id="running", stream="false")
    assert (refused.status_code, refused.json()["detail"]) == (409, f"Cannot continue run {run}: run is running")
    elsewhere = f"/agents/echo/runs/{run}"
    assert (await b.get(elsewhere, session_id="running")).json() == {"detail": "Run not found"}
    assert (await b.post(f"{elsewhere}/cancel", session_id="running")).status_code == 404
    assert (await b.stream(f"{elsewhere}/resume", session_id="running"))[0].event == "error"
    assert (await b.post(f"{elsewhere}/continue", session_id="running", stream="false")).status_code == 404
    (tmp_path / "go").touch()
    await a.until("hold", run, "running", "COMPLETED")


async def test_places_out_of_range_are_refused(a: Caller) -> None:
    """Weakness 13."""
    run = await a.run("counter", "x", "places")
    path = f"/agents/counter/runs/{run['run_id']}"
    last = len(run["messages"])
    for place in (-1, last + 1, 99):
        answer = await a.post(f"{path}/continue", session_id="places", stream="false", continue_from=place)
        assert answer.status_code == 400
        assert answer.json()["detail"] == f"message_index must be between 0 and {last}"
    listed = (await a.get(f"{path}/checkpoints", session_id="places")).json()["checkpoints"]
    assert [(entry["message_index"], entry["reason"], entry["is_latest"]) for entry in listed] == [
        (3, "checkpoint", False),
        (5, "checkpoint", False),
        (6, "end", True),
    ]
    shown = (await a.get(f"{path}/checkpoints/3", session_id="places")).json()
    assert len(shown["snapshot"]["messages"]) == 3
    assert shown["checkpoint"]["reason"] == "snapshot"
    inside = await a.post(f"{path}/continue", session_id="places", stream="false", continue_from=4)
    assert inside.json()["forked_from_message_index"] == 3, "snapped down"


async def test_runs_of_a_session_are_in_order_and_see_each_other(a: Caller, b: Caller) -> None:
    """Weakness 16."""
    runs = [await (a, b)[n % 2].begin("past", f"m{n}", "order") for n in range(4)]
    await a.until("past", runs[-1], "order", "COMPLETED")
    listed = (await b.get("/agents/past/runs", session_id="order")).json()
    assert [row["run_id"] for row in listed] == runs
    for number, row in enumerate(listed):
        assert row["run_input"] == f"m{number}"
        for earlier in range(number):
            assert f"m{earlier}" in row["content"]


async def test_a_key_is_one_run_whoever_sends_it_and_however_often(a: Caller, b: Caller) -> None:
    """Weakness 15: without a queue to be switched on, and without a session, too."""
    for session in ({"session_id": "key"}, {}):
        form: dict[str, Any] = {"message": "once", "stream": "false", **session}
        headers = {"Idempotency-Key": f"key-{len(session)}"}
        tries = [caller.post("/agents/echo/runs", headers, **form) for caller in (a, b) * 8]
        answers = await asyncio.gather(*tries)
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.json()["run_id"] for answer in answers}) == 1
        other = await a.post("/agents/echo/runs", headers, **{**form, "message": "another"})
        assert other.status_code == 409


async def test_a_key_of_a_continue_is_one_new_run_and_one_decision(a: Caller, b: Caller, tmp_path: Path) -> None:
    headers = {"Idempotency-Key": "go-on"}
    run = await a.run("counter", "x", "keyed")
    path = f"/agents/counter/runs/{run['run_id']}/continue"
    form: dict[str, Any] = {"session_id": "keyed", "stream": "false"}
    answers = await asyncio.gather(*(caller.post(path, headers, **form) for caller in (a, b) * 4))
    assert {answer.status_code for answer in answers} == {200}
    (new,) = {answer.json()["run_id"] for answer in answers}
    assert new != run["run_id"]
    asked = await paused(a, "approver", ask(tmp_path), "keyed-ask")
    path = f"/agents/approver/runs/{asked['run_id']}/continue"
    form = {"session_id": "keyed-ask", "stream": "false", "tools": decided(asked)}
    answers = await asyncio.gather(*(caller.post(path, headers, **form) for caller in (a, b) * 4))
    assert {(answer.status_code, answer.json()["run_id"]) for answer in answers} == {(200, asked["run_id"])}
    assert len(lines(tmp_path, "ran")) == 1


async def test_a_cancel_and_an_approval_at_once_agree(a: Caller, b: Caller, tmp_path: Path) -> None:
    """Whichever comes first: what was refused never runs, and no run stays open."""
    for number in range(4):
        directory = tmp_path / str(number)
        directory.mkdir()
        run = await paused(a, "approver", ask(directory), f"race{number}")
        path = f"/agents/approver/runs/{run['run_id']}"
        form: dict[str, Any] = {"session_id": f"race{number}", "stream": "false", "tools": decided(run)}
        approval, cancel = await asyncio.gather(a.post(f"{path}/continue", **form), b.post(f"{path}/cancel"))
        assert cancel.status_code == 200
        found = await a.until("approver", run["run_id"], f"race{number}", "COMPLETED", "CANCELLED")
        ran = len(lines(directory, "ran"))
        if approval.status_code == 409:
            assert (found["status"], ran) == ("CANCELLED", 0)
        else:
            assert approval.status_code == 200
            assert approval.json()["status"] == found["status"]
            assert ran == 1 if found["status"] == "COMPLETED" else ran <= 1


async def test_a_run_behind_a_paused_one_is_queued_and_says_so(a: Caller, b: Caller, tmp_path: Path) -> None:
    first = await paused(a, "asker", tmp_path, "behind")
    (tmp_path / "go").touch()
    answer = await b.post("/agents/asker/runs", message=str(tmp_path), session_id="behind", stream="false")
    assert answer.status_code == 202
    assert answer.json()["status"] == "PENDING"
    assert "paused" in answer.json()["message"]
    await a.post(f"/agents/asker/runs/{first['run_id']}/cancel", session_id="behind")
    await a.until("asker", answer.json()["run_id"], "behind", "PAUSED")


async def test_a_failed_run_that_goes_on_is_a_new_run_and_holds_up_nobody(a: Caller, b: Caller) -> None:
    """Each failure pauses the queue before those that wait; whoever reads one of these opens it."""
    bad = [await a.begin("failing", "x", "bad") for _ in range(4)]
    await a.until("failing", bad[-1], "bad", "ERROR")
    third = await b.run("failing", "y", "bad")
    assert third["status"] == "ERROR"
    assert (await a.poll("failing", bad[1], "bad"))["status"] == "ERROR"
    again = await a.post(f"/agents/failing/runs/{bad[0]}/continue", session_id="bad", stream="false")
    assert again.json()["forked_from_run_id"] == bad[0]
    assert again.json()["status"] == "COMPLETED"


async def test_a_create_resumes_a_queue_that_an_interrupt_has_paused(cluster: Cluster, a: Caller, b: Caller) -> None:
    """The interrupt of the native API stops the queue; AgentOS's callers know of none."""
    first = await a.begin("slow", "400 0.05", "stopped")
    await a.until("slow", first, "stopped", "RUNNING")
    waiting = await a.begin("slow", "1 0", "stopped")
    await cluster.client().json("POST", f"/v1/sessions/stopped/turns/{first}/interrupt", status=202)
    await a.until("slow", first, "stopped", "CANCELLED")
    types = [event["type"] for event in await cluster.client().events("stopped")]
    assert types[-1] == "session.queue_paused"
    done = await b.run("slow", "1 0", "stopped")
    assert done["status"] == "COMPLETED"
    assert (await b.poll("slow", waiting, "stopped"))["status"] == "COMPLETED", "in order"


async def test_sessions_have_names_and_deleted_ones_do_not_come_back(a: Caller, b: Caller) -> None:
    await a.run("echo", "what is said first", "named", user_id="ann")
    listed = (await b.get("/sessions", user_id="ann")).json()
    assert [row["session_name"] for row in listed["data"]] == ["what is said first"]
    stranger = await a.post("/agents/echo/runs", message="x", session_id="named", user_id="bob", stream="false")
    assert (stranger.status_code, stranger.json()) == (404, {"detail": "Session not found"})
    renamed = await b.http.post("/sessions/named/rename", json={"session_name": "New"})
    assert renamed.json()["session_name"] == "New"
    detail = (await a.get("/sessions/named")).json()
    assert [message["content"] for message in detail["chat_history"]] == [
        "what is said first",
        "what is said first ",
    ]
    assert (await b.http.delete("/sessions/named")).status_code == 204
    assert (await b.http.delete("/sessions/named")).status_code == 204
    assert (await a.get("/sessions/named")).status_code == 404
    gone = await a.post("/agents/echo/runs", message="x", session_id="named", user_id="ann", stream="false")
    assert gone.status_code == 410


async def test_files_outlive_the_worker_that_unpacked_them_and_go_on_into_later_runs_and_forks(
    cluster: Cluster, a: Caller, b: Caller, tmp_path: Path
) -> None:
    """§4: uploads survive a kill -9, an archive is unpacked once, and a fork of the session has its files."""
    files = [
        ("files", ("notes.zip", zipped({"a.txt": b"one" * 300_000, "__MACOSX/x": b""}, ZIP_STORED), "application/zip")),
        ("files", ("b.md", b"two", "text/markdown")),
    ]
    form = {"message": str(tmp_path), "session_id": "files", "stream": "false"}
    answer = await a.http.post("/agents/reader/runs", data=form, files=files)
    assert (answer.status_code, answer.json().get("status")) == (200, "COMPLETED"), answer.text
    assert answer.json()["content"] == "a.txt=oneoneoneo b.md=two "
    stored = await cluster.client().events("files")
    assert [event["type"] for event in stored].count("turn.input_rewritten") == 1
    assert max(event["data"].get("attempt", 1) for event in stored) == 2
    later = await b.run("reader", str(tmp_path), "files")
    assert later["content"] == "a.txt=oneoneoneo b.md=two "
    fork = (await a.post("/agents/reader/sessions/files/fork")).json()["session_id"]
    assert (await b.run("reader", str(tmp_path), fork))["content"] == "a.txt=oneoneoneo b.md=two "
    bad = [("files", ("bad.zip", zipped({"../a.txt": b"x"}), "application/zip"))]
    answer = await a.http.post("/agents/reader/runs", data=form, files=bad)
    assert answer.json()["status"] == "ERROR"
    assert answer.json()["content"] == "The archive bad.zip has a file whose name leads out of it."
