"""Teams: their own names of events, their own field of decisions."""

import json

from tests.acceptance.agentos.contract.story import Story

RUNS = "/teams/crew/runs"
ACT = '[tool: act {"what": "q"}]'


async def tell(s: Story) -> None:
    await s.post("team", RUNS, message="[say: hi team]", session_id="t")
    await s.post("team, inline", RUNS, message="[say: hi team]", session_id="t", stream="false")
    streamed = await s.post("team, background stream", RUNS, message="[say: x]", session_id="t", background="true")
    begun = await s.post(
        "team, background", RUNS, message="[say: x]", session_id="t", background="true", stream="false"
    )
    await s.ended(f"{RUNS}/{begun['run_id']}", "t")
    await s.get("poll a team", f"{RUNS}/{begun['run_id']}", session_id="t")
    await s.get("list of a team", RUNS, session_id="t")
    await s.post("replay of a team", f"{RUNS}/{streamed[0]['run_id']}/resume", session_id="t")
    await s.get("checkpoints of a team", f"{RUNS}/{begun['run_id']}/checkpoints", session_id="t")
    await s.post("team fails", RUNS, message="[http=500]", session_id="tf")
    task = json.dumps({"member_id": "member", "task": "[say: member says]"})
    await s.post("delegated", RUNS, message=f"[tool: delegate_task_to_member {task}]", session_id="t2")
    fails = json.dumps({"member_id": "faulty", "task": "anything"})
    message = f"[tool: delegate_task_to_member {fails}]"
    await s.post("a member fails", "/teams/duo/runs", message=message, session_id="t6")
    asked = await s.post("team asks", RUNS, message=ACT, session_id="t3")
    path = f"{RUNS}/{asked[0]['run_id']}"
    requirements = asked[-1]["requirements"]
    form = {"session_id": "t3", "stream": "false"}
    await s.get("poll a paused team", path, session_id="t3")
    await s.post("team, bad JSON", f"{path}/continue", requirements="{", **form)
    await s.post("team, no session", f"{path}/continue", requirements=json.dumps(requirements), stream="false")
    await s.post("team, unknown run", f"{RUNS}/nope/continue", **form)
    await s.post("team, undecided", f"{path}/continue", requirements=json.dumps(requirements), **form)
    requirements[0]["confirmation"] = True
    requirements[0]["tool_execution"]["confirmed"] = True
    done = await s.post("team, decided", f"{path}/continue", requirements=json.dumps(requirements), **form)
    s.fact("the team's answer", (done["status"], done["content"]))
    asked = await s.run("teams", "crew", ACT, "t4")
    requirements = [{**one, "confirmation": True} for one in asked["requirements"]]
    requirements[0]["tool_execution"]["confirmed"] = True
    path = f"{RUNS}/{asked['run_id']}/continue"
    await s.post("team, decided, stream", path, requirements=json.dumps(requirements), session_id="t4")
    again = await s.run("teams", "crew", "[say: hi]", "t5")
    path = f"{RUNS}/{again['run_id']}/continue"
    forked = await s.post("team, fork", path, session_id="t5", stream="false", fork="true")
    s.fact("a team's fork", forked["run_id"] != again["run_id"])
    await s.post("team, regenerate", path, session_id="t5", stream="false", regenerate="true")
