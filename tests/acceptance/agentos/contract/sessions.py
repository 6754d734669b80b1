"""§9: sessions."""

from tests.acceptance.agentos.contract.story import Story

RUNS = "/agents/plain/runs"


async def tell(s: Story) -> None:
    run = await s.run("agents", "plain", "[say: what is said]", "listed", user_id="lister")
    await s.get("sessions", "/sessions", type="agent", user_id="lister")
    await s.get("sessions of a component", "/sessions", type="agent", component_id="plain", user_id="lister")
    s.fact("of nobody", (await s.get("sessions of nobody", "/sessions", type="agent", user_id="nobody"))["data"])
    await s.get("session", "/sessions/listed", type="agent")
    await s.get("no session", "/sessions/nowhere", type="agent")
    await s.get("session runs", "/sessions/listed/runs", type="agent")
    s.fact(
        "none failed", await s.get("session runs of a status", "/sessions/listed/runs", type="agent", status="ERROR")
    )
    await s.get("no session runs", "/sessions/nowhere/runs", type="agent")
    await s.get("previews", "/sessions/listed/run-previews", type="agent")
    await s.get("one run", f"/sessions/listed/runs/{run['run_id']}", type="agent")
    await s.get("no such run", "/sessions/listed/runs/nope", type="agent")
    await _made(s)
    await _changed(s)
    await _gone(s)


async def _made(s: Story) -> None:
    new = {"session_id": "made", "agent_id": "plain", "session_name": "N", "session_state": {"a": 1}}
    await s.send("create session", "POST", "/sessions?type=agent", new)
    await s.send("create it again", "POST", "/sessions?type=agent", new)
    await s.get("a session without runs", "/sessions/made", type="agent")
    bare = await s.caller.http.post("/sessions?type=agent", json={"session_id": "bare"})
    s.fact("a session without an agent", bare.status_code, "session-agent", 422)


async def _changed(s: Story) -> None:
    await s.send("rename", "POST", "/sessions/listed/rename?type=agent", {"session_name": "R"})
    await s.send("rename without a name", "POST", "/sessions/listed/rename?type=agent", {})
    await s.send("rename nothing", "POST", "/sessions/nowhere/rename?type=agent", {"session_name": "R"})
    await s.send("change the name", "PATCH", "/sessions/listed?type=agent", {"session_name": "R2"})
    state = await s.caller.http.patch("/sessions/listed?type=agent", json={"session_state": {"b": 1}})
    s.fact("change the state", state.status_code, "session-state", 400)


async def _gone(s: Story) -> None:
    await s.run("agents", "plain", "[say: x]", "forked")
    made = await s.post("fork a session", "/agents/plain/sessions/forked/fork")
    await s.get("runs of a fork", f"/sessions/{made['session_id']}/runs", type="agent")
    await s.post("fork no session", "/agents/plain/sessions/nowhere/fork")
    path = "/agents/tooled/sessions/forked/fork"
    await s.post("fork of another agent's", path, "foreign", (404, "Session not found"))
    await s.run("agents", "tooled", '[tool: act {"what": "a"}]', "waits")
    nothing = (400, "Source session has no runs to fork.")
    await s.post("fork what waits", "/agents/tooled/sessions/waits/fork", "session-fork", nothing)
    await s.send("delete", "DELETE", "/sessions/made")
    await s.send("delete nothing", "DELETE", "/sessions/nowhere")
    await s.send(
        "delete several",
        "DELETE",
        "/sessions",
        {"session_ids": ["listed", "nowhere"], "session_types": ["agent", "agent"]},
    )
    await s.get("a deleted session", "/sessions/listed", type="agent")
    gone = (410, "Session made was deleted; its id is never used again")
    await s.post("in a deleted session", RUNS, "session-gone", gone, message="x", session_id="made", stream="false")
