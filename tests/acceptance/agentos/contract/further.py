"""What clients do less often: pages, times, files_metadata, empty values, cancels of teams, shapes of decisions."""

import json
from typing import Any

from tests.acceptance.agentos.contract.story import Story

RUNS = "/agents/plain/runs"


async def tell(s: Story) -> None:
    await s.together(_home, _pages, _values, _unary, _cancels, _shapes, _snapshots, _two)


async def _home(s: Story) -> None:
    await s.get("home", "/")
    for path in ("/queue/stats", "/queue/jobs", "/queue/jobs/x"):
        await s.get(path, path, "queue-routes", (404, "Not Found"))
    answer = await s.caller.http.get("/agents", headers={"Origin": "http://x.example"})
    s.fact("answers vary by origin", "origin" in answer.headers.get("vary", "").lower(), "cors", False)


async def _pages(s: Story) -> None:
    runs = [await s.run("agents", "plain", f"[say: {n}]", f"paged{n}", user_id="pager") for n in range(3)]
    for page in (1, 2, 3):
        found = await s.get(f"page {page}", "/sessions", type="agent", user_id="pager", limit=2, page=page)
        s.fact(f"on page {page}", len(found["data"]))
        s.fact(f"meta {page}", {k: v for k, v in found["meta"].items() if k != "search_time_ms"})
    await s.get("no rows a page", "/sessions", type="agent", limit=0)
    await s.get("no page", "/sessions", type="agent", page=-1)
    zero = (await s.caller.get("/sessions", type="agent", user_id="pager", page=0)).json()
    s.fact("on page 0", len(zero["data"]), "page-zero", 3)
    found = await s.get("by name", "/sessions", type="agent", user_id="pager", session_name="[say: 1]")
    s.fact("named", [row["session_id"] for row in found["data"]])
    await s.get("limit no number", "/sessions", type="agent", limit="x")
    await s.get("page no number", "/sessions", type="agent", page="x")
    at = runs[0]["created_at"]
    for label, query in (
        ("after", {"created_after": at - 100}),
        ("long after", {"created_after": at + 9999}),
        ("before", {"created_before": at + 9999}),
        ("long before", {"created_before": at - 100}),
    ):
        found = await s.get(f"created {label}", "/sessions/paged0/runs", type="agent", **query)
        s.fact(f"how many {label}", len(found))
    await s.get("created no number", "/sessions/paged0/runs", type="agent", created_after="x")
    two = await s.caller.get("/sessions/paged0/runs?status=ERROR&status=COMPLETED&type=agent")
    s.fact("two statuses", len(two.json()))


async def _values(s: Story) -> None:
    said: dict[str, Any] = {"message": "[say: x]", "stream": "false"}
    files = {"files": ("a.txt", b"what", "text/plain")}
    for label, metadata in (("a list", '[{"a": 1}]'), ("no JSON", "{"), ("no list", '{"a": 1}')):
        form = {**said, "session_id": "about", "files_metadata": metadata}
        s.look(f"upload, files_metadata {label}", await s.caller.http.post(RUNS, data=form, files=files))
    await s.post("empty values", RUNS, session_id="", user_id="", files_metadata="", **said)
    run = await s.post("empty fields", RUNS, session_id="empty", metadata="", **said)
    await s.post(
        "empty continue_from",
        f"{RUNS}/{run['run_id']}/continue",
        session_id="empty",
        continue_from="",
        tools="",
        stream="false",
    )
    await s.post("monitor", "/teams/crew/runs", session_id="monitored", monitor="true", **said)
    await s.post("no version", RUNS, session_id="v", version="x", **said)
    await s.post("background no boolean", RUNS, session_id="v", message="x", background="maybe")


async def _unary(s: Story) -> None:
    run = await s.run("agents", "plain", "[delay=1.5] [say: late]", "unary", background="true")
    path = f"{RUNS}/{run['run_id']}"
    await s.ended(path, "unary", "RUNNING")
    await s.caller.post(f"{path}/cancel", session_id="unary")
    await s.ended(path, "unary")
    found = await s.get("cancelled while the model thinks", path, session_id="unary")
    told = found["content"].replace(run["run_id"], "<id>")
    s.fact("its end", (found["status"], told, found.get("cancellation_stage")))


async def _cancels(s: Story) -> None:
    for kind, component in (("teams", "crew"), ("workflows", "flow")):
        path = f"/{kind}/{component}/runs"
        await s.post(f"cancel, unknown, {kind}", f"/{kind}/nope/runs/nope/cancel", session_id="q")
        form = {"message": "[gap=0.03] [words=100]", "session_id": f"q-{kind}", "background": "true"}
        frames = await s.caller.stream(path, 6, **form)
        run = json.loads(frames[0].data)["run_id"]
        await s.post(f"cancel {kind}", f"{path}/{run}/cancel", session_id=f"q-{kind}")
        found = await s.ended(f"{path}/{run}", f"q-{kind}")
        s.fact(f"cancelled {kind}", found["status"])
        await s.get(f"poll a cancelled one, {kind}", f"{path}/{run}", session_id=f"q-{kind}")
        await s.post(f"replay of a cancelled one, {kind}", f"{path}/{run}/resume", session_id=f"q-{kind}")
        await s.post(
            f"continue a cancelled one, {kind}", f"{path}/{run}/continue", session_id=f"q-{kind}", stream="false"
        )


async def _shapes(s: Story) -> None:
    form = {"session_id": "shape", "stream": "false"}
    for value, fault in (("[1]", "expected a JSON array of objects"), ('[{"x": 1}]', "an entry has no {}")):
        for path, field, key in (
            ("/teams/crew", "requirements", "tool_call_id"),
            ("/workflows/gated", "step_requirements", "step_id"),
        ):
            refused = (400, f"Invalid structure or content for {field}: {fault.format(key)}")
            where = f"{path}/runs/nope/continue"
            await s.post(f"{field} {value}", where, "continue-shape", refused, **{field: value}, **form)


async def _snapshots(s: Story) -> None:
    run = await s.run("teams", "crew", '[tool: value {"name": "a"}]', "snap")
    path = f"/teams/crew/runs/{run['run_id']}/checkpoints"
    listed = await s.get("team checkpoints", path, session_id="snap")
    first = listed["checkpoints"][0]["message_index"]
    await s.get("team snapshot", f"{path}/{first}", session_id="snap")


async def _two(s: Story) -> None:
    message = '[tool: act {"what": "a"}] [tool: act {"what": "b"}]'
    run = await s.run("agents", "tooled", message, "echoed")
    path = f"/agents/tooled/runs/{run['run_id']}/continue"
    tools = [{**tool, "confirmed": True} for tool in run["tools"]]
    done = await s.post("confirmed, both", path, tools=json.dumps(tools), session_id="echoed", stream="false")
    s.fact("both ran", (done["status"], done["content"]))
