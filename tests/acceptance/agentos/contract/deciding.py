"""§8: pause and continue."""

import json
from typing import Any

from tests.acceptance.agentos.contract.story import Story

RUNS = "/agents/tooled/runs"
ACT = '[tool: act {"what": "a"}]'


async def tell(s: Story) -> None:
    await s.together(_confirming, _kinds, _again, _running, _over)


def decided(run: Any, **change: Any) -> str:
    tools = [{**tool, **change} for tool in run["tools"]]
    for entry in tools[0]["user_input_schema"] or []:
        entry["value"] = entry["value"] or "Rome"
    return json.dumps(tools)


async def _confirming(s: Story) -> None:
    asked = await s.post("asks", RUNS, message=ACT, session_id="d")
    tools = asked[-1]["tools"]
    path = f"{RUNS}/{asked[0]['run_id']}"
    await s.get("poll a paused run", path, session_id="d")
    await s.post("no session", f"{path}/continue", tools=json.dumps(tools), stream="false")
    await s.post("bad JSON", f"{path}/continue", tools="{", session_id="d", stream="false")
    shape = (400, "Invalid structure or content for tools: expected a JSON array of objects")
    await s.post("no array", f"{path}/continue", "continue-shape", shape, tools='{"x": 1}', session_id="d")
    await s.post("unknown run", f"{RUNS}/nope/continue", session_id="d", stream="false")
    missing = (404, "No runs found for run ID nope")
    await s.post("unknown run, stream", f"{RUNS}/nope/continue", "continue-unknown-stream", missing, session_id="d")
    await s.post("continue, unknown agent", "/agents/nope/runs/nope/continue", session_id="d")
    tools[0]["confirmed"] = True
    await s.post("confirmed", f"{path}/continue", tools=json.dumps(tools), session_id="d")
    background = await s.post("asks in the background", RUNS, message=ACT, session_id="d2", background="true")
    path = f"{RUNS}/{background[0]['run_id']}"
    await s.post("resume a paused run", f"{path}/resume", session_id="d2")
    await s.get("checkpoints of a paused run", f"{path}/checkpoints", session_id="d2")
    form = {"tools": decided(background[-1], confirmed=True), "session_id": "d2", "background": "true"}
    await s.post("confirmed in the background", f"{path}/continue", **form)
    whole = await s.post("replay over the pause", f"{path}/resume", session_id="d2")
    s.fact("indices go on", [one["event_index"] for one in whole[1:]] == list(range(len(whole) - 1)))
    run = await s.run("agents", "tooled", ACT, "d3")
    form = {"tools": decided(run, confirmed=True), "session_id": "d3", "background": "true", "stream": "false"}
    await s.post("confirmed in the background, no stream", f"{RUNS}/{run['run_id']}/continue", **form)


async def _kinds(s: Story) -> None:
    for label, message, change in (
        ("refused", ACT, {"confirmed": False, "confirmation_note": "no"}),
        ("external", '[tool: outside {"what": "a"}]', {"result": "done"}),
        ("input", '[tool: go {"how": "train"}]', {"answered": True}),
    ):
        session = f"d-{label}"
        run = await s.post(f"asks, {label}", RUNS, message=message, session_id=session, stream="false")
        s.fact(f"what it says, {label}", (run["status"], run["content"]))
        path = f"{RUNS}/{run['run_id']}/continue"
        done = await s.post(label, path, tools=decided(run, **change), session_id=session, stream="false")
        s.fact(f"what came of it, {label}", (done["status"], done["content"], done["run_id"] == run["run_id"]))


async def _again(s: Story) -> None:
    run = await s.run("agents", "tooled", ACT, "open")
    path = f"{RUNS}/{run['run_id']}"
    still = (409, "Cannot continue run <id>: run is paused; answer its questions, or cancel it")
    await s.post("fork a paused run", f"{path}/continue", "continue-paused", still, session_id="open", fork="true")
    undecided = (400, "Cannot continue run - unresolved tools: ['act']")
    await s.post("undecided", f"{path}/continue", "continue-missing", undecided, session_id="open", stream="false")
    # The original has decided now, and goes no further.
    twice = await s.run("agents", "tooled", ACT, "twice")
    path = f"{RUNS}/{twice['run_id']}/continue"
    form: dict[str, Any] = {"session_id": "twice", "stream": "false", "tools": decided(twice, confirmed=True)}
    answers = [(await s.caller.post(path, **form)).json()["run_id"] for _ in range(2)]
    s.fact("approved again, the same run", len(set(answers)) == 1, "continue-repeat", True)
    behind = await s.run("agents", "tooled", ACT, "behind")
    await s.post("behind a paused run", RUNS, "queue", 202, message="[say: x]", session_id="behind", stream="false")
    await s.caller.post(f"{RUNS}/{behind['run_id']}/cancel", session_id="behind")
    found = await s.caller.get(f"{RUNS}/{behind['run_id']}", session_id="behind")
    s.fact("a paused run that is cancelled", found.json()["status"], "cancel-paused", "CANCELLED")


async def _running(s: Story) -> None:
    runs = "/agents/plain/runs"
    begun = await s.run("agents", "plain", "[delay=1.2] [say: x]", "busy", background="true")
    path = f"{runs}/{begun['run_id']}"
    await s.ended(path, "busy", "RUNNING")
    running = (409, "Cannot continue run <id>: run is running")
    where = f"{path}/continue"
    await s.post("continue a running run", where, "continue-running", running, session_id="busy", stream="false")


async def _over(s: Story) -> None:
    runs = "/agents/plain/runs"
    failed = await s.run("agents", "plain", "[http=500]", "failed")
    path = f"{runs}/{failed['run_id']}/continue"
    gone_on = await s.caller.post(path, session_id="failed", stream="false", input="[say: fine]")
    s.fact("a failed run goes on as itself", gone_on.json()["run_id"] == failed["run_id"], "continue-error", False)
    done = await s.run("agents", "plain", "[say: x]", "done")
    path = f"{runs}/{done['run_id']}/continue"
    forked = await s.post("continue a completed run", path, session_id="done", stream="false")
    s.fact("it is another one", (forked["run_id"] != done["run_id"], forked["forked_from_run_id"] == done["run_id"]))
    frames = await s.caller.stream(path, session_id="done", background="true")
    same = json.loads(frames[0].data)["run_id"] == done["run_id"]
    s.fact("streamed in the background it is overwritten", same, "continue-completed", False)
